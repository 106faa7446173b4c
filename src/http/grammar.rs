//! Grammars that requests ask for: compiled off the workers, a few at a time and within a bounded time. Not here: in which fields a dialect
//! asks for one.

use super::refusal::{Kind, Refusal};
use metrics::{counter, histogram};
use ropeteam_engine::constraint::Constraint;
use ropeteam_engine::observe::metric;
use ropeteam_engine::request::GenerateRequest;
use ropeteam_models::grammar::{GrammarError, GrammarSpec, Grammars};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Grammars that are compiled at the same time; the others wait.
const AT_ONCE: usize = 2;
/// Longest wait for the others, and again longest time for itself. What is within the bounds of `models::grammar` takes less than one.
const PATIENCE: Duration = Duration::from_secs(10);

/// A grammar and the field that asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// As the client wrote it, with dots inside.
    pub field: String,
    /// What the output must obey.
    pub spec: GrammarSpec,
}

/// Where grammars are compiled.
pub struct GrammarDesk {
    grammars: Arc<Grammars>,
    permits: Arc<Semaphore>,
}

impl GrammarDesk {
    /// For the grammars of one model.
    pub fn new(grammars: Grammars) -> Self {
        // There from the start, so that their first increase can be seen.
        counter!(metric::GRAMMAR_CACHE_HITS.name).increment(0);
        GrammarDesk {
            grammars: Arc::new(grammars),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Makes all `requests` obey what is asked for, if anything is.
    ///
    /// # Errors
    /// A grammar that is wrong, too large or takes too long, by its field; `ignore_eos` beside one.
    pub async fn constrain(
        &self,
        asked: Option<Asked>,
        requests: &mut [GenerateRequest],
    ) -> Result<(), Refusal> {
        let Some(asked) = asked else { return Ok(()) };
        if requests.iter().any(|request| request.stop.ignore_eos) {
            let message = format!(
                "ignore_eos must be false beside {}: what obeys it has an end",
                asked.field
            );
            return Err(Refusal::invalid("ignore_eos", message));
        }
        let constraint = self.compile(asked).await?;
        for request in requests {
            request.constraint = Some(constraint.clone());
        }
        Ok(())
    }

    async fn compile(&self, asked: Asked) -> Result<Arc<dyn Constraint>, Refusal> {
        if let Some(known) = self.grammars.known(&asked.spec) {
            counter!(metric::GRAMMAR_CACHE_HITS.name).increment(1);
            return Ok(known);
        }
        let permit = tokio::time::timeout(PATIENCE, self.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| {
            failed("busy");
            busy()
        })?;
        let (field, spec) = (asked.field, asked.spec);
        let grammars = self.grammars.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let begun = Instant::now();
            let compiled = grammars.compile(&spec);
            if compiled.is_ok() {
                histogram!(metric::GRAMMAR_COMPILE.name).record(begun.elapsed());
            }
            compiled
        });
        let (reason, why) = match tokio::time::timeout(PATIENCE, work).await {
            Ok(Ok(Ok(compiled))) => return Ok(compiled),
            Ok(Ok(Err(error))) => (word(&error), error.to_string()),
            Ok(Err(_)) => ("invalid", "it cannot be compiled".to_owned()),
            Err(_) => (
                "timeout",
                format!("compiling it takes longer than {PATIENCE:?}"),
            ),
        };
        failed(reason);
        Err(Refusal::invalid(&field, format!("{field}: {why}")))
    }
}

/// Why a grammar is not followed, as metrics say it.
fn word(error: &GrammarError) -> &'static str {
    match error {
        GrammarError::Invalid(_) => "invalid",
        GrammarError::TooLarge { .. } => "too_large",
        GrammarError::Model(_) => "model",
    }
}

fn failed(reason: &'static str) {
    counter!(metric::GRAMMAR_FAILURES.name, "reason" => reason).increment(1);
}

fn busy() -> Refusal {
    Refusal {
        retry_after: Some(PATIENCE),
        ..Refusal::new(Kind::Overloaded, "too many grammars are being compiled")
    }
}

/// A schema as JSON text: given as an object, or as that text already.
///
/// # Errors
/// When it is neither.
pub fn schema_text(field: &str, schema: &Value) -> Result<String, Refusal> {
    match schema {
        Value::Object(_) | Value::Bool(_) => Ok(schema.to_string()),
        Value::String(text) => Ok(text.clone()),
        other => Err(Refusal::invalid(
            field,
            format!("{field} must be a JSON schema, got {other}"),
        )),
    }
}
