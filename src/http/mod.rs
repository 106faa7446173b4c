//! Everything HTTP and JSON: the route tables below, the dialects, the two ports. The only place that knows actix-web's types.
//!
//! | file | what |
//! | --- | --- |
//! | `server.rs`, `state.rs` | the two ports; what handlers share |
//! | `body.rs`, `json.rs`, `request_id.rs`, `auth.rs`, `deadline.rs` | the way in, the same for all dialects |
//! | `submit.rs`, `answer.rs`, `sse.rs` | the way to the engine and back, the same for all dialects |
//! | `refusal.rs` | every failure, before a dialect gives it its shape |
//! | `openai/`, `tgi/`, `mindie/`, `articles.rs` | the dialects: wire types stay in their own |
//! | `openapi/` | the description of all routes, put together from a part beside each dialect, and the page that shows it |
//! | `management.rs`, `deep_health.rs`, `metrics_page/`, `request_log.rs`, `records/` | what operators read |
//! | `control/` | what operators change, and who may |
//!
//! To add a dialect, add its file, its lines in [`serving_routes`], and its description beside it (`openapi.json`).

pub mod answer;
pub mod articles;
pub mod auth;
pub mod body;
pub mod chat_parts;
pub mod control;
pub mod deadline;
pub mod deep_health;
pub mod grammar;
pub mod json;
mod json_text;
pub mod management;
pub mod metrics_page;
pub mod mindie;
pub mod openai;
pub mod openapi;
pub mod probe;
pub mod records;
pub mod refusal;
pub mod request_id;
pub mod request_log;
#[cfg(test)]
mod scripted;
pub mod server;
pub mod sse;
pub mod state;
pub mod submit;
#[cfg(test)]
mod tests;
pub mod tgi;
mod wall_clock;

use actix_web::dev::Handler;
use actix_web::http::Method;
use actix_web::http::header::ALLOW;
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse, Resource, Responder, guard};
use refusal::{Kind, Refusal};

/// The inference port. Health and metrics are on both ports.
pub fn serving_routes(routes: &mut ServiceConfig) {
    routes
        .service(
            resource("/v1/chat/completions", "POST")
                .route(
                    web::post()
                        .guard(guard::fn_guard(articles::has_prompt_in_query))
                        .to(articles::chat_by_query),
                )
                .route(web::post().to(openai::chat::route)),
        )
        .service(post("/v1/completions", openai::completions::route))
        .service(post("/v1/embeddings", openai::embeddings::route))
        .service(get("/v1/models", openai::models::list))
        .service(get("/v1/models/{id:.+}", openai::models::one))
        .service(
            resource("/", "GET, HEAD, POST")
                .route(read().to(management::health))
                .route(web::post().to(tgi::generate::compat)),
        )
        .service(post("/generate", tgi::generate::generate))
        .service(post("/generate_stream", tgi::generate::generate_stream))
        .service(post("/invocations", tgi::invocations::route))
        .service(post("/tokenize", tgi::tokenize::route))
        .service(post("/chat_tokenize", tgi::chat_tokenize::route))
        .service(get("/info", tgi::info::route))
        .service(post("/detokenize", openai::tokenize::detokenize))
        .service(get("/tokenizer_info", openai::tokenize::info))
        .service(
            resource("/ping", "GET, HEAD, POST")
                .route(read().to(management::health))
                .route(web::post().to(management::health)),
        )
        .service(get("/version", management::version))
        .service(get("/load", management::load))
        .configure(mindie_routes)
        .service(post("/v1/generate", articles::generate))
        .service(get("/v1/stream", articles::stream))
        .service(get("/api-doc/openapi.json", openapi::serving))
        .configure(shared_routes);
}

/// What MindIE has on the inference port beside TGI's and OpenAI's routes.
fn mindie_routes(routes: &mut ServiceConfig) {
    routes
        .service(post("/infer", mindie::infer::route))
        .service(post("/infer_token", mindie::infer::route))
        .service(post("/v1/tokenizer", mindie::tokenizer::route))
        .service(get("/v2", mindie::models::server));
    for model in [
        "/v2/models/{model}",
        "/v2/models/{model}/versions/{version}",
    ] {
        let at = |rest: &str| format!("{model}{rest}");
        routes
            .service(get(&at(""), mindie::models::model))
            .service(get(&at("/config"), mindie::models::config))
            .service(get(&at("/ready"), mindie::models::ready))
            .service(post(&at("/generate"), mindie::triton::generate))
            .service(post(
                &at("/generate_stream"),
                mindie::triton::generate_stream,
            ))
            .service(post(&at("/infer"), mindie::triton_tokens::route))
            .service(post(&at("/stopInfer"), mindie::triton::stop));
    }
}

/// What MindIE has on the management port.
fn mindie_management_routes(routes: &mut ServiceConfig) {
    routes
        .service(get("/health/timed", mindie::health::timed))
        .service(get("/health/timed-{seconds}", mindie::health::timed))
        .service(get("/v2/models/{model}/ready", mindie::models::ready))
        .service(get(
            "/v2/models/{model}/getSlotCount",
            mindie::management::slot_count,
        ))
        .service(get("/info", mindie::management::info))
        .service(get("/metrics-json", mindie::management::metrics_json))
        .service(get("/v2/status", mindie::management::status_v2))
        .service(get(
            "/v1/engine-server/running-status",
            mindie::management::running_status,
        ))
        .service(get("/stopService", mindie::stop_service::route));
    for path in [
        "/v1/engine-server/fault-handling-command",
        "/v1/role/{role}",
        "/v2/role/{role}",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
    ] {
        routes.service(post(path, mindie::management::not_offered));
    }
}

/// The metrics port.
pub fn metrics_routes(routes: &mut ServiceConfig) {
    routes
        .service(get("/metrics", metrics_page::with_bare_names))
        .default_service(web::to(no_such_route));
}

/// The management port. Everything but what is named in `control::OPEN` needs the operator's key.
pub fn management_routes(routes: &mut ServiceConfig) {
    routes.service(
        web::scope("")
            .wrap(from_fn(control::guard))
            .configure(guarded_routes),
    );
}

fn guarded_routes(routes: &mut ServiceConfig) {
    routes
        .service(get("/v1/devices", management::devices))
        .service(post("/v1/devices/{id}/restart", control::devices::restart))
        .service(post("/v1/devices/{id}/drain", control::devices::drain))
        .service(post("/v1/devices/{id}/resume", control::devices::resume))
        .service(get("/v1/requests", control::requests::list))
        .service(
            resource("/v1/requests/{id}", "DELETE")
                .route(web::delete().to(control::requests::cancel)),
        )
        .service(post("/v1/drain", control::drain))
        .service(
            resource("/v1/config", "GET, HEAD, PATCH")
                .route(read().to(mindie::management::config))
                .route(web::patch().to(control::config::change)),
        )
        .service(get("/v1/events", control::events::stream))
        .service(get("/v1/status", management::status))
        .service(get("/api-doc/openapi.json", openapi::management))
        .service(get("/metrics", metrics_page::with_bare_names))
        .configure(mindie_management_routes)
        .configure(shared_routes);
}

fn shared_routes(routes: &mut ServiceConfig) {
    routes
        .service(get("/health", management::health))
        .service(get("/health/live", management::live))
        .service(get("/health/deep", deep_health::route))
        .service(get("/v2/health/live", mindie::health::live))
        .service(get("/v2/health/ready", mindie::health::ready))
        .service(get("/metrics", metrics_page::route))
        .service(get("/docs", openapi::page))
        .default_service(web::to(no_such_route));
}

fn post<H, A>(path: &str, handler: H) -> Resource
where
    H: Handler<A>,
    A: FromRequest + 'static,
    H::Output: Responder + 'static,
{
    resource(path, "POST").route(web::post().to(handler))
}

fn get<H, A>(path: &str, handler: H) -> Resource
where
    H: Handler<A>,
    A: FromRequest + 'static,
    H::Output: Responder + 'static,
{
    resource(path, "GET, HEAD").route(read().to(handler))
}

/// GET and HEAD, which is GET without the body.
fn read() -> actix_web::Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// A resource that answers other methods than `allowed` with 405.
fn resource(path: &str, allowed: &'static str) -> Resource {
    #[cfg(test)]
    openapi::tests::note_route(path, allowed);
    web::resource(path).default_service(web::to(move |request: HttpRequest| async move {
        let mut response = match *request.method() {
            Method::OPTIONS => HttpResponse::NoContent().finish(),
            ref method => {
                let message = format!("{method} is not allowed here, use {allowed}");
                told(&request, &Refusal::new(Kind::MethodNotAllowed, message))
            }
        };
        response.headers_mut().insert(
            ALLOW,
            actix_web::http::header::HeaderValue::from_static(allowed),
        );
        response
    }))
}

async fn no_such_route(request: HttpRequest) -> HttpResponse {
    told(
        &request,
        &Refusal::new(
            Kind::NotFound,
            format!("There is no route {}.", request.path()),
        ),
    )
}

/// A refusal in the shape of the dialect that the path belongs to.
fn told(request: &HttpRequest, refusal: &Refusal) -> HttpResponse {
    match request.path() {
        path if path.starts_with("/v2") || path.starts_with("/infer") => {
            mindie::error::response(refusal)
        }
        path if path.starts_with("/v1/") => openai::error::response(refusal),
        _ => tgi::error::response(refusal),
    }
}
