//! Runs the ports: workers, timeouts, socket options and the middleware that every route shares. Not here: routes (`mod.rs`).
//!
//! A client that leaves is noticed by the connection's read side, even while nothing is written (`h1_allow_half_closed(false)`): actix
//! then drops the handler or the response body, which cancels the request. So a client must keep its sending side open until it has the
//! answer. A client that stays but takes nothing is cut by the kernel (`TCP_USER_TIMEOUT`) with the same effect.

use super::deadline::with_deadline;
use super::request_id::{X_REQUEST_ID, with_request_id};
use super::state::AppState;
use super::submit::IGNORED_FIELDS;
use super::{management_routes, metrics_routes, serving_routes};
use actix_cors::Cors;
use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::dev::{Extensions, Server};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::web::{Data, ServiceConfig};
use actix_web::{App, HttpServer};
use socket2::SockRef;
use std::any::Any;
use std::net::TcpListener;
use std::time::Duration;

/// How a refused or finished connection is given time to read the answer before it is closed.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// How the ports are run.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Threads that parse and write HTTP on the inference port.
    pub workers: usize,
    /// Most connections on the inference port.
    pub max_connections: usize,
    /// How long running answers may take after a stop before they are cut.
    pub shutdown: Duration,
}

/// A port that is listened on, and how it speaks TLS, if it does.
pub struct Door {
    /// Bound and listening.
    pub listener: TcpListener,
    /// `None`: plain HTTP.
    pub tls: Option<rustls::ServerConfig>,
}

/// Starts the inference port on a bound listener. The returned server runs when it is awaited; stop it through its handle.
///
/// # Errors
/// When the listener cannot be used.
pub fn serve(
    door: Door,
    state: Data<AppState>,
    settings: &ServerSettings,
) -> std::io::Result<Server> {
    let workers = settings.workers.max(1);
    run(
        Port {
            door,
            workers,
            connections_per_worker: (settings.max_connections / workers).max(1),
            routes: serving_routes,
            origins: any_origin,
        },
        state,
        settings.shutdown,
    )
}

/// Starts the management port.
///
/// # Errors
/// When the listener cannot be used.
pub fn serve_management(
    door: Door,
    state: Data<AppState>,
    settings: &ServerSettings,
) -> std::io::Result<Server> {
    run(
        Port {
            door,
            workers: 1,
            connections_per_worker: 256,
            routes: management_routes,
            origins: no_origin,
        },
        state,
        settings.shutdown,
    )
}

/// Starts the port of the metrics alone.
///
/// # Errors
/// When the listener cannot be used.
pub fn serve_metrics(
    door: Door,
    state: Data<AppState>,
    settings: &ServerSettings,
) -> std::io::Result<Server> {
    run(
        Port {
            door,
            workers: 1,
            connections_per_worker: 64,
            routes: metrics_routes,
            origins: no_origin,
        },
        state,
        settings.shutdown,
    )
}

/// What differs between the ports.
struct Port {
    door: Door,
    workers: usize,
    connections_per_worker: usize,
    routes: fn(&mut ServiceConfig),
    origins: fn() -> Cors,
}

fn run(port: Port, state: Data<AppState>, shutdown: Duration) -> std::io::Result<Server> {
    let timeouts = state.timeouts.clone();
    let (routes, origins) = (port.routes, port.origins);
    let app = move || {
        App::new()
            .wrap(from_fn(with_deadline))
            .wrap(from_fn(with_request_id))
            .wrap(origins())
            .app_data(state.clone())
            .configure(routes)
    };
    let server = HttpServer::new(app)
        .workers(port.workers)
        .max_connections(port.connections_per_worker)
        .client_request_timeout(timeouts.header)
        .client_disconnect_timeout(CLOSE_PATIENCE)
        .keep_alive(timeouts.keep_alive)
        .h1_allow_half_closed(false)
        .on_connect(move |socket: &dyn Any, _: &mut Extensions| prepare(socket, timeouts.write))
        .shutdown_timeout(shutdown.as_secs().max(1))
        .disable_signals();
    let Door { listener, tls } = port.door;
    let server = match tls {
        None => server.listen(listener)?,
        Some(tls) => server.listen_rustls_0_23(listener, tls)?,
    };
    Ok(server.run())
}

/// Small frames leave at once; a peer that takes nothing for `write` is cut.
fn prepare(socket: &dyn Any, write: Duration) {
    let plain = socket.downcast_ref::<TcpStream>();
    let tls = || Some(socket.downcast_ref::<TlsStream<TcpStream>>()?.get_ref().0);
    let Some(stream) = plain.or_else(tls) else {
        return;
    };
    let socket = SockRef::from(stream);
    if let Err(error) = socket.set_tcp_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = socket.set_tcp_user_timeout(Some(write)) {
        tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = write;
}

/// Pages of any origin may call, as with the servers this one replaces.
fn any_origin() -> Cors {
    Cors::default()
        .allow_any_origin()
        .allowed_methods(["GET", "POST"])
        .allow_any_header()
        .expose_headers([X_REQUEST_ID, IGNORED_FIELDS])
        .max_age(3600)
}

/// Pages of no other origin may call.
fn no_origin() -> Cors {
    Cors::default()
}
