//! `ropeteam bench`: loads any server that speaks OpenAI's or TGI's API and measures what a client sees.
//!
//! ```text
//! flags ─▶ plan ─▶ session (asks the server) ─▶ load (arrivals, exchange, connections, sse, api) ─▶ records ─▶ summary ─▶ report
//! ```
//!
//! One thread does it all, so that a core is enough to load a server; what it takes of that core is part of the result.
//! Not here: the flags (`cli/bench.rs`). `kernels` stands apart: it measures this machine and no server.

pub mod api;
pub mod arrivals;
mod compare;
mod connections;
mod cost;
pub mod dataset;
mod exchange;
pub mod kernels;
pub mod lengths;
mod live;
pub mod load;
mod machine;
mod metric;
pub mod plan;
mod progress;
mod record;
mod report;
mod server;
mod session;
mod sse;
mod summary;
pub mod target;
mod tokens;

use crate::signals::Signals;
use crate::start_error::StartError;
use metric::Metric;
use plan::Plan;
pub use report::Outputs;
use report::Report;
use session::{Round, Session};
use std::path::Path;
use target::Target;

/// What is printed, and whether all went well.
pub struct Finished {
    /// For the terminal.
    pub text: String,
    /// Whether every request succeeded.
    pub good: bool,
    /// Whether a signal ended it.
    pub stopped: bool,
}

/// Measures as planned. `command` is the command line for the report.
///
/// # Errors
/// When there is nobody to measure, or the flags do not fit the server.
pub fn run(plan: &Plan, command: &str, outputs: Outputs) -> Result<Finished, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::Other(error.to_string()))?;
    runtime.block_on(async {
        match &plan.against {
            None => one(plan, command, outputs).await,
            Some(_) => in_turn(plan, command).await,
        }
    })
}

/// Asks a server what it is and warms it up; also gives what went wrong with the warm-up.
async fn open(
    plan: &Plan,
    target: &Target,
    signals: &mut Signals,
) -> Result<(Session, Option<String>), StartError> {
    let session = tokio::select! {
        session = Session::open(plan, target) => session?,
        signal = signals.next() => return Err(StartError::Signal(signal)),
    };
    let problem = session.warm_up(signals).await?;
    Ok((session, problem))
}

async fn one(plan: &Plan, command: &str, outputs: Outputs) -> Result<Finished, StartError> {
    let mut signals = Signals::new()?;
    let (session, warm_up) = open(plan, &plan.target, &mut signals).await?;
    let round = session.round(0, &mut signals).await?;
    let mut report = Report::of(command, plan, &session, &round);
    report.notes.extend(warm_up);
    outputs.write(&report, &round.run)?;
    Ok(Finished {
        text: report.text(),
        good: is_good(&round),
        stopped: round.run.stopped,
    })
}

/// Both servers by turns, so that what changes on the machine meanwhile meets both; then the medians and their ratios.
async fn in_turn(plan: &Plan, command: &str) -> Result<Finished, StartError> {
    let mut signals = Signals::new()?;
    let mut sessions = Vec::new();
    for target in std::iter::once(&plan.target).chain(&plan.against) {
        let (session, _) = open(plan, target, &mut signals).await?;
        sessions.push((session, Vec::<Vec<Metric>>::new()));
    }
    let (mut good, mut stopped) = (true, false);
    'rounds: for number in 0..plan.rounds {
        for (session, figures) in &mut sessions {
            let round = session.round(number, &mut signals).await?;
            if round.run.stopped {
                stopped = true;
                break 'rounds;
            }
            good &= is_good(&round);
            let report = Report::of(command, plan, session, &round);
            eprintln!("round {} of {}\n{}", number + 1, plan.rounds, report.text());
            figures.push(report.metrics());
        }
    }
    let mut text = String::new();
    for (letter, (session, figures)) in ["A", "B"].iter().zip(&sessions) {
        let (url, model, rounds) = (&session.target, &session.manner.model, figures.len());
        text.push_str(&format!(
            "{letter}: {url}, model {model}, median of {rounds} rounds\n"
        ));
    }
    let medians: Vec<_> = sessions
        .iter()
        .map(|(_, figures)| compare::medians(figures))
        .collect();
    if let [a, b] = medians.as_slice() {
        text.push_str(&compare::table(a, b));
    }
    Ok(Finished {
        text,
        good,
        stopped,
    })
}

fn is_good(round: &Round) -> bool {
    let records = &round.run.records;
    !round.run.stopped && records.iter().all(|record| record.failure.is_none())
}

/// A table of two results that `--json` wrote.
///
/// # Errors
/// When one cannot be read.
pub fn compare(a: &Path, b: &Path) -> Result<String, StartError> {
    let read = |path: &Path| {
        let wrong = |problem: String| StartError::Usage(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Report::from_json(&text).map_err(wrong)
    };
    let (first, second) = (read(a)?, read(b)?);
    let line = |letter, path: &Path, report: &Report| {
        let (url, model) = (&report.url, &report.model);
        format!("{letter}: {} ({url}, model {model})\n", path.display())
    };
    let head = line("A", a, &first) + &line("B", b, &second);
    Ok(head
        + &different_settings(&first, &second)
        + &compare::table(&first.metrics(), &second.metrics()))
}

/// The settings that differ: a ratio between unlike runs says little.
fn different_settings(a: &Report, b: &Report) -> String {
    let value = |report: &Report, name: &str| {
        let found = report.settings.iter().find(|(known, _)| known == name);
        found.map_or("-".to_owned(), |(_, value)| value.clone())
    };
    let mut lines = String::new();
    for (name, _) in &a.settings {
        let (of_a, of_b) = (value(a, name), value(b, name));
        if of_a != of_b {
            lines.push_str(&format!("differs: {name} {of_a} | {of_b}\n"));
        }
    }
    let only_b = |name: &String| value(a, name) == "-";
    for (name, value) in b.settings.iter().filter(|(name, _)| only_b(name)) {
        lines.push_str(&format!("differs: {name} - | {value}\n"));
    }
    lines
}
