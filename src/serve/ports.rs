//! The ports: bound first, then served, stopped at the end.

use crate::config::ServerConfig;
use crate::http::server::{ServerSettings, serve, serve_management, serve_metrics};
use crate::http::state::AppState;
use crate::listen::listen;
use crate::start_error::StartError;
use actix_web::dev::{Server, ServerHandle};
use actix_web::web::Data;
use std::net::TcpListener;
use std::time::Duration;

/// The listeners, before anything is served on them.
pub struct Ports {
    inference: TcpListener,
    management: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

impl Ports {
    /// Binds the ports and logs where.
    ///
    /// # Errors
    /// The first that could not be bound.
    pub fn bind(config: &ServerConfig) -> Result<Self, StartError> {
        let inference = listen(&config.host, config.port)?;
        let host = config.management_host.as_ref().unwrap_or(&config.host);
        let bound = |port: Option<u16>| port.map(|port| listen(host, port)).transpose();
        let management = bound(config.management_port)?;
        let metrics = bound(config.metrics_port)?;
        let shown = |port: &Option<TcpListener>| port.as_ref().map_or("off".to_owned(), address);
        tracing::info!(
            inference = address(&inference),
            management = shown(&management),
            metrics = shown(&metrics),
            "listening"
        );
        Ok(Ports {
            inference,
            management,
            metrics,
        })
    }

    /// Serves on them.
    ///
    /// # Errors
    /// When a listener cannot be used.
    pub fn serve(
        self,
        state: &Data<AppState>,
        config: &ServerConfig,
    ) -> Result<Running, StartError> {
        let settings = ServerSettings {
            workers: workers(),
            max_connections: config.max_connections,
            shutdown: Duration::from_secs(1),
        };
        let failed = |error: std::io::Error| StartError::Other(format!("http server: {error}"));
        let mut handles = vec![begin(
            serve(self.inference, state.clone(), &settings).map_err(failed)?,
        )];
        if let Some(listener) = self.management {
            handles.push(begin(
                serve_management(listener, state.clone(), &settings).map_err(failed)?,
            ));
        }
        if let Some(listener) = self.metrics {
            handles.push(begin(
                serve_metrics(listener, state.clone(), &settings).map_err(failed)?,
            ));
        }
        Ok(Running { handles })
    }
}

/// One HTTP worker for four cores, at most four: one passes on well over 100,000 tokens a second, and the cores belong to the kernels.
fn workers() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 4).clamp(1, 4)
}

fn address(listener: &TcpListener) -> String {
    listener
        .local_addr()
        .map_or("unknown".to_owned(), |address| address.to_string())
}

fn begin(server: Server) -> ServerHandle {
    let handle = server.handle();
    actix::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "http server ended");
        }
    });
    handle
}

/// The servers of the ports.
pub struct Running {
    handles: Vec<ServerHandle>,
}

impl Running {
    /// Closes the ports; answers under way get `patience` to reach their clients.
    pub async fn stop(self, patience: Duration) {
        let stops = self.handles.iter().map(|handle| handle.stop(true));
        let all = futures_util::future::join_all(stops);
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::debug!("some connections were still open");
        }
    }
}
