//! The last answer to whether a token really comes. Not here: how one is made to come (`deep_health.rs`).

use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long an answer counts.
const FRESH: Duration = Duration::from_secs(5);

/// The last probe. Who asks while one is under way gets its answer, so that no number of askers makes more work.
#[derive(Debug, Default)]
pub struct Probe(Mutex<Option<Probed>>);

/// What a probe found.
#[derive(Clone, Debug)]
pub struct Probed {
    /// When it ended.
    pub at: Instant,
    /// How long it took.
    pub took: Duration,
    /// What was wrong.
    pub problem: Option<String>,
}

impl Probe {
    /// What it found a moment ago, or finds now; `probe` tells what is wrong.
    pub async fn found(&self, probe: impl Future<Output = Option<String>>) -> Probed {
        let mut last = self.0.lock().await;
        if let Some(probed) = last.as_ref().filter(|probed| probed.at.elapsed() < FRESH) {
            return probed.clone();
        }
        let begun = Instant::now();
        let problem = probe.await;
        last.insert(Probed {
            at: Instant::now(),
            took: begun.elapsed(),
            problem,
        })
        .clone()
    }
}
