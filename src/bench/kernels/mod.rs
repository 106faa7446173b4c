//! `ropeteam bench kernels`: what share of this machine's limits each kernel reaches. The limits are measured first and again at the end
//! of the same run, the memory's speed before each kernel as well, so that a share compares like with like. Not here: the loops that measure them (`ropeteam_kernels::limits`).

mod attending;
mod clock;
mod passes;
mod products;
mod roofline;
mod table;

use crate::start_error::StartError;
use indicatif::ProgressBar;
use roofline::{Limits, Reading};
use ropeteam_kernels::{Isa, Machine};
use serde::Serialize;
use table::{Case, Line};

/// Takes each case as it is done.
type Show<'a> = dyn FnMut(Case) + 'a;

/// The result, as `--json` writes it.
#[derive(Serialize)]
pub struct KernelReport {
    format: &'static str,
    machine: String,
    limits: Limits,
    kernels: Vec<Line>,
}

/// Measures; on `threads` threads, or one per core.
///
/// # Errors
/// When there is no memory.
pub fn run(threads: Option<usize>) -> Result<KernelReport, StartError> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let machine = &mut Machine::new(Isa::best(), threads.unwrap_or_else(cores));
    let progress = ProgressBar::new_spinner();
    progress.set_message("limits of the machine");
    progress.tick();
    let reading = Reading::new(machine)?;
    let before = Limits::measure(machine, &reading);
    let mut cases = Vec::new();
    let mut show = |case: Case| {
        progress.set_message(format!("{} {}", case.kernel, case.shape));
        progress.tick();
        cases.push(case);
    };
    products::measure(machine, &reading, &mut show)?;
    attending::measure(machine, &reading, &mut show)?;
    passes::measure(machine, &reading, &mut show);
    let limits = before.max(Limits::measure(machine, &reading));
    progress.finish_and_clear();
    Ok(KernelReport {
        format: "ropeteam-bench-kernels 1",
        machine: format!(
            "{}, {} in use, {} threads",
            super::machine::describe(),
            machine.isa().name(),
            machine.threads()
        ),
        limits,
        kernels: cases.iter().map(|case| Line::of(case, &limits)).collect(),
    })
}

fn out_of_memory(error: std::io::Error) -> StartError {
    StartError::Device(format!("memory: {error}"))
}

impl KernelReport {
    /// As a terminal shows it.
    pub fn text(&self) -> String {
        table::text(&self.machine, &self.limits, &self.kernels)
    }
}
