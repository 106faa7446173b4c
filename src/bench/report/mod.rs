//! A run's result with all that is needed to repeat it, and the forms in which it is told.

mod cdf;
mod csv;
mod html;
mod outputs;
mod svg;
mod table;

use super::api::Task;
use super::cost::ClientCost;
use super::machine;
use super::metric::{Metric, metrics};
use super::plan::Plan;
use super::server::ServerInfo;
use super::session::{Round, Session};
use super::summary::Summary;
use serde::{Deserialize, Serialize};

pub use outputs::Outputs;

/// First field of every result; grows when a field changes its meaning.
const FORMAT: &str = "ropeteam-bench 1";

/// A result, as `--json` writes it and `--compare` reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `FORMAT`.
    pub format: String,
    /// The command line, keys left out.
    pub command: String,
    /// Version of this program.
    pub version: String,
    /// Seconds since 1970 at its end.
    pub unix_time: u64,
    /// The machine that the client ran on.
    pub client_machine: String,
    /// The server's address.
    pub url: String,
    /// How it was asked.
    pub api: String,
    /// Whether answers were streamed.
    pub streamed: bool,
    /// The model's name.
    pub model: String,
    /// What the server told of itself.
    pub server: ServerInfo,
    /// The settings in effect, by name.
    pub settings: Vec<(String, String)>,
    /// The figures.
    pub summary: Summary,
    /// What the measuring cost.
    pub client: ClientCost,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
}

impl Report {
    /// Of one round.
    pub fn of(command: &str, plan: &Plan, session: &Session, round: &Round) -> Report {
        let summary = Summary::of(&round.run);
        let settings = plan.settings().into_iter();
        Report {
            format: FORMAT.to_owned(),
            command: command.to_owned(),
            version: crate::VERSION.to_owned(),
            unix_time: now(),
            client_machine: machine::describe(),
            url: session.target.to_string(),
            api: session.manner.api.name().to_owned(),
            streamed: session.manner.task == Task::Stream,
            model: session.manner.model.clone(),
            server: session.server.clone(),
            settings: settings
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            notes: notes(&summary, &round.cost, session.has_tokenizer()),
            summary,
            client: round.cost,
        }
    }

    /// The figures that runs are compared by.
    pub fn metrics(&self) -> Vec<Metric> {
        metrics(&self.summary)
    }

    /// Reads what `--json` wrote.
    ///
    /// # Errors
    /// When it is something else.
    pub fn from_json(text: &str) -> Result<Report, String> {
        let report: Report = serde_json::from_str(text)
            .map_err(|error| format!("no result of ropeteam bench: {error}"))?;
        match report.format == FORMAT {
            true => Ok(report),
            false => Err(format!("its format is {:?}, not {FORMAT:?}", report.format)),
        }
    }

    /// The result as a terminal shows it.
    pub fn text(&self) -> String {
        table::text(self)
    }
}

fn notes(summary: &Summary, cost: &ClientCost, has_tokenizer: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if summary.stopped {
        notes.push(
            "stopped before the end: the figures are of the requests that had ended".to_owned(),
        );
    }
    if cost.is_suspicious() {
        notes.push(
            "the client was busy most of the time: the figures may be its own and not the server's"
                .to_owned(),
        );
    }
    if cost.resent > 0 {
        let count = cost.resent;
        notes.push(format!("requests sent again, since the server had closed kept connections (--no-keepalive avoids it): {count}"));
    }
    if summary.without_usage > 0 {
        let by = if has_tokenizer {
            "our tokenizer"
        } else {
            "events"
        };
        let count = summary.without_usage;
        notes.push(format!(
            "answers without the server's token count, counted by {by}: {count}"
        ));
    }
    let counts = [
        (
            "prompts",
            summary.prompt_tokens,
            summary.prompt_tokens_counted,
        ),
        (
            "answers",
            Some(summary.output_tokens),
            summary.output_tokens_counted,
        ),
    ];
    for (what, server, ours) in counts {
        if let Some((server, ours)) = server.zip(ours).filter(|(server, ours)| server != ours) {
            notes.push(format!(
                "tokens of {what}: the server counts {server}, our tokenizer {ours}"
            ));
        }
    }
    if summary.events > 0 && summary.events < summary.output_tokens {
        let each = summary.output_tokens as f64 / summary.events as f64;
        notes.push(format!(
            "{each:.2} tokens per event: inter-token times are between events, TPOT is per token"
        ));
    }
    if summary.other_length > 0 {
        let count = summary.other_length;
        notes.push(format!("answers shorter or longer than asked for: {count}"));
    }
    notes
}

/// Tokens of prompts, as far as known.
fn prompt_tokens(summary: &Summary) -> String {
    match summary.prompt_tokens {
        Some(count) => format!("{count} of prompts ({} cached)", summary.cached_tokens),
        None => "unknown of prompts".to_owned(),
    }
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |span| span.as_secs())
}
