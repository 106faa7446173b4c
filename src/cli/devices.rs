//! `ropeteam devices`: what models could be served on, on this machine.

use super::output;
use crate::devices;
use crate::exit::Exit;
use crate::start_error::StartError;
use ropeteam_ascend::{Search, Survey, survey};
use ropeteam_device::{Float, KvPrecision, Precision};
use std::fmt::Write;

/// Runs the command.
///
/// # Errors
/// When the CPU cannot be asked, or standard output not be written.
pub fn run() -> Result<Exit, StartError> {
    let cpu = devices::find("cpu")?.entry;
    let options = devices::DeviceOptions {
        threads: None,
        precision: Precision::Bf16,
        kv: KvPrecision::ByWeights,
        half: Float::Bf16,
        number: 0,
        step_timeout_ms: 1,
        graphs: false,
    };
    let cpu = (cpu.open)(&options).map_err(|error| StartError::Device(error.to_string()))?;
    let info = cpu.info();
    let mut text = format!("cpu       {}, {} free\n", info.name, gib(info.free_bytes));
    match survey(&Search::from_environment()) {
        Ok(survey) => text.push_str(&npus(&survey)),
        Err(error) => {
            let _ = writeln!(
                text,
                "ascend    none: {error} (`ropeteam doctor --device ascend` says what to do)"
            );
        }
    }
    output::print(&text)?;
    Ok(Exit::Done)
}

fn npus(survey: &Survey) -> String {
    let version = survey.runtime_version.as_deref().unwrap_or("unknown");
    let driver = driver_version().unwrap_or_else(|| "unknown".to_owned());
    let mut text = String::new();
    for npu in &survey.npus {
        let memory = match &npu.memory {
            Ok((free, total)) => format!("{} of {} free", gib(*free), gib(*total)),
            Err(error) => error.clone(),
        };
        let health = npu
            .health
            .map_or("health unknown".to_owned(), |h| h.to_string());
        let _ = writeln!(
            text,
            "ascend:{}  {}, {memory}, {health}",
            npu.number, npu.name
        );
    }
    if survey.npus.is_empty() {
        text.push_str("ascend    no chip is visible\n");
    }
    let _ = writeln!(text, "CANN runtime interface {version}, driver {driver}");
    text
}

fn driver_version() -> Option<String> {
    let text = std::fs::read_to_string("/usr/local/Ascend/driver/version.info").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Version="));
    line.map(str::to_owned)
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}
