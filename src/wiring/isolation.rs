//! Where a device's inside runs: on a thread of the server, or in a process of its own, which is this program again with the hidden
//! command `device-process`. What that needs to know travels through its socket, so nothing of it shows in a process list.

use super::build::Recipe;
use crate::config::{self, Config};
use crate::exit::Exit;
use crate::logging::{self, LogSettings};
use crate::signals::Signals;
use crate::start_error::StartError;
use ropeteam_actors::{DeviceSpec, Isolation, ProcessSpec, Rebuilt, serve_device};
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::ids::DeviceId;
use ropeteam_models::grammar::Grammars;
use serde::{Deserialize, Serialize};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

/// The hidden command.
pub const COMMAND: &str = "device-process";
/// This very program, also when its file was replaced meanwhile: both sides of the socket must be of one version.
const PROGRAM: &str = "/proc/self/exe";

/// What a device's process must know.
#[derive(Serialize, Deserialize)]
struct Setting {
    log: LogSettings,
    recipe: Recipe,
}

/// A device for each recipe.
///
/// # Errors
/// A path that cannot be told to another process.
pub fn devices(
    recipes: impl Iterator<Item = Recipe>,
    config: &Config,
) -> Result<Vec<DeviceSpec>, StartError> {
    let numbered = (0..).map(DeviceId).zip(recipes);
    numbered
        .map(|(id, recipe)| {
            let isolation = isolation(recipe.of(id), config)?;
            Ok(DeviceSpec { id, isolation })
        })
        .collect()
}

fn isolation(recipe: Recipe, config: &Config) -> Result<Isolation, StartError> {
    if config.model_config.isolation == config::Isolation::Thread {
        return Ok(Isolation::Thread(recipe.into_build()));
    }
    let log = LogSettings::from(&config.server_config);
    let setting = serde_json::to_vec(&Setting { log, recipe })
        .map_err(|error| StartError::Usage(format!("isolation: process: {error}")))?;
    Ok(Isolation::Process(ProcessSpec {
        command: Arc::new(|| {
            let mut command = Command::new(PROGRAM);
            command.arg0("ropeteam").arg(COMMAND);
            command
        }),
        recipe: setting.into(),
    }))
}

/// Serves the device that the process at the other end of standard input wants.
///
/// # Errors
/// When there is none.
pub fn serve_process() -> Result<Exit, StartError> {
    let _deaf = ignore_signals()?;
    // What `top` shows. A failure costs no more than that.
    let _ = rustix::thread::set_name(c"ropeteam-device");
    let served = serve_device(|wanted| {
        let (device, epoch) = (wanted.device, wanted.epoch);
        let setting: Setting =
            serde_json::from_slice(wanted.recipe).map_err(|error| DeviceFault {
                kind: FaultKind::Start,
                detail: format!("its recipe: {error}"),
            })?;
        logging::start(setting.log);
        tracing::debug!(%device, %epoch, "device process begins");
        let recipe = setting.recipe;
        let mut grammars: Option<Grammars> = None;
        let (executor, keeps_cache) = recipe.build_in(epoch, wanted.cache)?;
        Ok(Rebuilt {
            executor,
            keeps_cache,
            constraints: Box::new(move |source| {
                if grammars.is_none() {
                    let made = recipe.grammars();
                    grammars = made
                        .map_err(|error| tracing::error!(%error, "no grammars"))
                        .ok();
                }
                let made = grammars.as_ref()?.compile_source(source);
                made.map_err(|error| tracing::error!(%error, "a grammar cannot be compiled again"))
                    .ok()
            }),
        })
    });
    match served {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(StartError::Other(error.to_string())),
    }
}

/// A service manager sends SIGTERM to all processes of a service. Its devices must live until the server has drained; then it ends
/// them.
fn ignore_signals() -> Result<impl Sized, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|error| StartError::Other(format!("signals: {error}")))?;
    let signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    Ok((runtime, signals))
}
