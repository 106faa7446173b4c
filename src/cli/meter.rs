//! How far a command is: a bar on a terminal, a line for every tenth elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::time::Duration;

/// How often a bar's times are drawn anew.
const TICK: Duration = Duration::from_secs(1);
/// Lines where there is no terminal.
const LINES: usize = 10;

/// Shows how far; a bar vanishes with the last of it.
pub struct Meter {
    bar: ProgressBar,
    total: usize,
    what: &'static str,
    tenths: Cell<usize>,
}

impl Meter {
    /// Of `total`, called `what`.
    pub fn new(total: usize, what: &'static str) -> Self {
        let bar = ProgressBar::new(total as u64).with_message(what);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self {
            bar,
            total,
            what,
            tenths: Cell::new(0),
        }
    }

    /// So much is done.
    pub fn at(&self, done: usize) {
        self.bar.set_position(done as u64);
        if let Some(line) = self.line(done).filter(|_| self.bar.is_hidden()) {
            eprintln!("ropeteam: {line}");
        }
    }

    /// A line when another tenth is done.
    fn line(&self, done: usize) -> Option<String> {
        let tenths = done * LINES / self.total.max(1);
        let more = tenths > self.tenths.replace(tenths);
        more.then(|| format!("{done} of {} {}", self.total, self.what))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_for_every_tenth() {
        let meter = Meter::new(120, "projections");
        let lines: Vec<String> = (1..=120).filter_map(|done| meter.line(done)).collect();
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[0], "12 of 120 projections");
        assert_eq!(lines[9], "120 of 120 projections");
    }
}
