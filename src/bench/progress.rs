//! A line on the terminal that shows how far a run is: requests, running ones, tokens per second, errors. Nothing elsewhere.

use super::exchange::Client;
use super::live::Counts;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Often enough to look alive, seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(250);
/// The rate shown is that of so much time.
const WINDOW: usize = 8;

/// The line; gone when dropped.
pub struct Display {
    bar: ProgressBar,
    task: JoinHandle<()>,
}

impl Drop for Display {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.finish_and_clear();
    }
}

/// Shows the client's progress towards `requests`.
pub fn show(client: &Arc<Client>, requests: usize) -> Display {
    let bar = ProgressBar::new(requests as u64);
    let style = ProgressStyle::with_template("{elapsed:>5} {bar:30} {pos}/{len} requests, {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    let task = tokio::spawn(draw(client.clone(), bar.clone()));
    Display { bar, task }
}

async fn draw(client: Arc<Client>, bar: ProgressBar) {
    let mut seen: Vec<(Instant, u64)> = vec![(Instant::now(), 0)];
    loop {
        tokio::time::sleep(EVERY).await;
        let counts = client.live.counts();
        let now = Instant::now();
        let (then, before) = seen[seen.len().saturating_sub(WINDOW)];
        let rate = (counts.tokens - before) as f64 / (now - then).as_secs_f64();
        seen.push((now, counts.tokens));
        if seen.len() > 2 * WINDOW {
            seen.drain(..WINDOW);
        }
        bar.set_position(counts.ended);
        bar.set_message(message(counts, rate));
    }
}

fn message(counts: Counts, rate: f64) -> String {
    let mut text = format!("{} running, {rate:.0} tokens/s", counts.running);
    if counts.failed > 0 {
        text.push_str(&format!(", {} failed", counts.failed));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_shown_once_there_are_some() {
        let mut counts = Counts {
            running: 3,
            ..Counts::default()
        };
        assert_eq!(message(counts, 41.6), "3 running, 42 tokens/s");
        counts.failed = 2;
        assert!(message(counts, 0.0).ends_with(", 2 failed"));
    }
}
