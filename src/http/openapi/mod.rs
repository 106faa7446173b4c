//! The description of all routes: `GET /api-doc/openapi.json`, and `GET /docs`, a page that shows it and needs nothing from elsewhere.
//! Each dialect keeps a part beside its code (`openapi.json`); here they are put together, one document per port.
//! To describe a new dialect, write its part and name it in [`SERVING`] or [`MANAGEMENT`].

use actix_web::HttpResponse;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Parts of the document of the inference port.
const SERVING: &[&str] = &[
    include_str!("../openai/openapi.json"),
    include_str!("../tgi/openapi.json"),
    include_str!("../mindie/openapi.json"),
    include_str!("articles.json"),
    include_str!("serving.json"),
    include_str!("common.json"),
];

/// Parts of the document of the management port.
const MANAGEMENT: &[&str] = &[
    include_str!("management.json"),
    include_str!("../mindie/management.json"),
    include_str!("common.json"),
];

const PAGE: &str = include_str!("docs.html");

/// Which port's document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The inference port.
    Serving,
    /// The management port.
    Management,
}

static SERVING_DOCUMENT: LazyLock<String> = LazyLock::new(|| document(SERVING));
static MANAGEMENT_DOCUMENT: LazyLock<String> = LazyLock::new(|| document(MANAGEMENT));

impl Port {
    /// Its document, as JSON.
    fn document(self) -> &'static str {
        match self {
            Port::Serving => &SERVING_DOCUMENT,
            Port::Management => &MANAGEMENT_DOCUMENT,
        }
    }
}

/// Answers `GET /api-doc/openapi.json` of the inference port.
pub async fn serving() -> HttpResponse {
    answer(Port::Serving)
}

/// Answers `GET /api-doc/openapi.json` of the management port.
pub async fn management() -> HttpResponse {
    answer(Port::Management)
}

fn answer(port: Port) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/json")
        .body(port.document())
}

/// Answers `GET /docs`.
pub async fn page() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .body(PAGE)
}

/// The parts in one document. What two parts have alike stands there once.
fn document(parts: &[&str]) -> String {
    let mut whole = json!({
        "openapi": "3.1.0",
        "info": {"title": "Ropeteam", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "security": [{}, {"key": []}],
        "paths": {},
        "components": {}
    });
    for part in parts {
        let part: Value =
            serde_json::from_str(part).expect("the parts are JSON, a test reads them");
        if let (Value::Object(whole), Value::Object(part)) = (&mut whole, part) {
            merge(whole, part);
        }
    }
    whole.to_string()
}

/// Puts `part` into `whole`, objects into objects of the same name.
fn merge(whole: &mut Map<String, Value>, part: Map<String, Value>) {
    for (name, value) in part {
        match (whole.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (_, value) => {
                whole.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
pub mod tests;
