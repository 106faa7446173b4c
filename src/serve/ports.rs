//! The ports: bound first, then served, stopped at the end.

use super::descriptors;
use crate::config::{Config, ServerConfig};
use crate::http::server::{Door, ServerSettings, serve, serve_management, serve_metrics};
use crate::http::state::AppState;
use crate::listen::listen;
use crate::start_error::StartError;
use crate::tls::{TlsFiles, server_config};
use actix_web::dev::{Server, ServerHandle};
use actix_web::web::Data;
use std::path::Path;
use std::time::Duration;

/// The listeners, before anything is served on them.
pub struct Ports {
    inference: Door,
    management: Option<Door>,
    metrics: Option<Door>,
}

impl Ports {
    /// Binds the ports and logs where.
    ///
    /// # Errors
    /// The first that could not be bound.
    pub fn bind(config: &ServerConfig) -> Result<Self, StartError> {
        let inference = Door {
            listener: listen(&config.host, config.port)?,
            tls: inference_tls(config)?,
        };
        let host = &config.management_host;
        let bound = |port: Option<u16>| -> Result<Option<Door>, StartError> {
            let Some(port) = port else {
                return Ok(None);
            };
            Ok(Some(Door {
                listener: listen(host, port)?,
                tls: management_tls(config)?,
            }))
        };
        let management = bound(config.management_port)?;
        let metrics = bound(config.metrics_port)?;
        let shown = |port: &Option<Door>| port.as_ref().map_or("off".to_owned(), address);
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

    /// What is wrong with the certificates of all ports.
    pub fn unusable_certificates(config: &ServerConfig) -> Vec<StartError> {
        let problems = [inference_tls(config).err(), management_tls(config).err()];
        problems.into_iter().flatten().collect()
    }

    /// Whether other machines can reach the management port.
    pub fn management_is_exposed(&self) -> bool {
        let address = self
            .management
            .as_ref()
            .and_then(|door| door.listener.local_addr().ok());
        address.is_some_and(|address| !address.ip().is_loopback())
    }

    /// Serves on them.
    ///
    /// # Errors
    /// When a listener cannot be used.
    pub fn serve(self, state: &Data<AppState>, config: &Config) -> Result<Running, StartError> {
        let devices = usize::from(config.model_config.device_count);
        let settings = ServerSettings {
            workers: workers(),
            max_connections: descriptors::connections(
                config.server_config.max_connections,
                devices,
            ),
            shutdown: Duration::from_secs(1),
        };
        let failed = |error: std::io::Error| StartError::Other(format!("http server: {error}"));
        let mut handles = vec![begin(
            serve(self.inference, state.clone(), &settings).map_err(failed)?,
        )];
        if let Some(door) = self.management {
            handles.push(begin(
                serve_management(door, state.clone(), &settings).map_err(failed)?,
            ));
        }
        if let Some(door) = self.metrics {
            handles.push(begin(
                serve_metrics(door, state.clone(), &settings).map_err(failed)?,
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

fn address(door: &Door) -> String {
    let scheme = if door.tls.is_some() { "https://" } else { "" };
    door.listener
        .local_addr()
        .map_or("unknown".to_owned(), |address| format!("{scheme}{address}"))
}

fn inference_tls(config: &ServerConfig) -> Result<Option<rustls::ServerConfig>, StartError> {
    let files = [
        ("tls_cert", config.tls_cert.as_deref()),
        ("tls_key", config.tls_key.as_deref()),
        ("tls_client_ca", config.tls_client_ca.as_deref()),
        ("tls_client_crl", config.tls_client_crl.as_deref()),
    ];
    tls(files)
}

/// Its own certificate, or that of the inference port.
fn management_tls(config: &ServerConfig) -> Result<Option<rustls::ServerConfig>, StartError> {
    let files = [
        ("management_tls_cert", config.management_tls_cert.as_deref()),
        ("management_tls_key", config.management_tls_key.as_deref()),
        (
            "management_tls_client_ca",
            config.management_tls_client_ca.as_deref(),
        ),
        (
            "management_tls_client_crl",
            config.management_tls_client_crl.as_deref(),
        ),
    ];
    match files.iter().all(|(_, file)| file.is_none()) {
        true => inference_tls(config),
        false => tls(files),
    }
}

/// Certificate and key, and who may sign clients' certificates: none of them, or at least the first two.
fn tls(
    files: [(&'static str, Option<&Path>); 4],
) -> Result<Option<rustls::ServerConfig>, StartError> {
    let [cert, key, ca, crl] = files.map(|(option, file)| Some((option, file?)));
    let lone = |option: &str, other: &str| {
        Err(StartError::Usage(format!(
            "{option} is set but {other} is not"
        )))
    };
    let names = files.map(|(option, _)| option);
    match (cert, key) {
        (None, None) if ca.is_none() && crl.is_none() => return Ok(None),
        (Some(_), None) => lone(names[0], names[1]),
        (None, Some(_)) => lone(names[1], names[0]),
        (None, None) => lone(if ca.is_some() { names[2] } else { names[3] }, names[0]),
        _ if ca.is_none() && crl.is_some() => lone(names[3], names[2]),
        (Some(cert), Some(key)) => server_config(&TlsFiles {
            cert,
            key,
            client_ca: ca,
            client_crl: crl,
        }),
    }
    .map(Some)
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
