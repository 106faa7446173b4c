//! The life of the server process: bind, load, serve, drain. A signal ends each stage; a management call may end the serving.
//!
//! ```text
//! bind ports ─▶ answer 503 ─▶ load the model ─▶ serve ─▶ SIGTERM: refuse new requests, finish running ones ─▶ stop
//! ```

mod descriptors;
mod live;
mod offer;
mod ports;

use crate::config::{Config, Resolved};
use crate::exit::Exit;
use crate::http::state::StopMode;
use crate::logging::{self, SetLevel};
use crate::signals::Signals;
use crate::start_error::StartError;
use crate::wiring;
use actix_web::web::Data;
use live::Live;
use ports::{Ports, Running};
use ropeteam_actors::{DrainOutcome, Engine};
use std::time::Duration;

/// How long answers that have ended may take to reach their clients.
const FLUSH: Duration = Duration::from_secs(1);

/// What is wrong with the files that the configuration names beside the model. Changes nothing.
pub fn unusable_files(config: &Config) -> Vec<StartError> {
    let server = &config.server_config;
    let mut problems = offer::unusable_keys(server);
    problems.extend(Ports::unusable_certificates(server));
    problems.extend(wiring::fairness(config).err());
    // The management port takes the certificate of the other one where it has none of its own.
    problems.dedup_by_key(|problem| problem.to_string());
    problems
}

/// Serves until a signal ends it.
///
/// # Errors
/// Why it could not start.
pub fn run(resolved: Resolved) -> Result<Exit, StartError> {
    let set_level = logging::start(&resolved.config.server_config);
    for warning in &resolved.warnings {
        tracing::warn!("{warning}");
    }
    let ports = Ports::bind(&resolved.config.server_config)?;
    actix::System::new().block_on(serve(resolved, set_level, ports))
}

async fn serve(resolved: Resolved, set_level: SetLevel, ports: Ports) -> Result<Exit, StartError> {
    let config = resolved.config.clone();
    let mut signals = Signals::new()?;
    let mut state = offer::state(&config)?;
    state.management.exposed = ports.management_is_exposed();
    let state = Data::new(state);
    let running = ports.serve(&state, &config)?;
    let started = tokio::select! {
        started = wiring::start(&config) => started?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped while loading");
            return Ok(Exit::Done);
        }
    };
    let engine = started.engine.clone();
    let records = offer::records(&config, &started)?;
    offer::announce(&state, records, started);
    // Set once per process.
    let live = Live::new(engine.clone(), resolved, set_level);
    let _ = state.live.set(Box::new(live));
    let patience = Duration::from_millis(config.server_config.drain_timeout_ms);
    let (asked_by, patience) = tokio::select! {
        signal = signals.next() => (signal, patience),
        mode = state.stop_asked() => match mode {
            StopMode::Graceful => ("management call", patience),
            StopMode::Force => ("management call, at once", Duration::ZERO),
        },
    };
    tracing::info!(asked_by, ?patience, "draining");
    state.start_draining();
    tokio::select! {
        exit = drain(&engine, running, patience) => Ok(exit),
        signal = signals.next() => {
            tracing::warn!(signal, "second signal, ended at once");
            Ok(Exit::Signal)
        }
    }
}

/// Lets what was admitted finish, waiting requests included, then ends what is left.
async fn drain(engine: &Engine, running: Running, patience: Duration) -> Exit {
    let DrainOutcome { cut_off } = engine.drain(patience).await;
    running.stop(FLUSH).await;
    if cut_off > 0 {
        tracing::warn!(cut_off, "drain deadline passed, what was left was ended");
        return Exit::Cut;
    }
    tracing::info!("drained");
    Exit::Done
}
