//! How far a download is: a bar on a terminal, lines in the log elsewhere.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hf_hub::api::Progress;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

/// Shows one download.
pub(super) struct Meter {
    shown: Shown,
    size: Arc<AtomicU64>,
}

enum Shown {
    Bar(ProgressBar),
    Lines(Lines),
}

#[derive(Default)]
struct Lines {
    file: String,
    total: u64,
    done: u64,
    /// Tenths that were told already.
    told: u64,
}

/// Downloads smaller than this are not worth a line.
const SMALL: u64 = 1 << 20;

impl Meter {
    /// A meter that also tells the download's size through `size`.
    pub fn new(size: Arc<AtomicU64>) -> Self {
        let shown = match io::stderr().is_terminal() {
            true => Shown::Bar(ProgressBar::new(0)),
            false => Shown::Lines(Lines::default()),
        };
        Self { shown, size }
    }
}

impl Progress for Meter {
    fn init(&mut self, size: usize, filename: &str) {
        let total = size as u64;
        self.size.store(total, Ordering::Relaxed);
        match &mut self.shown {
            Shown::Bar(bar) => {
                let style = ProgressStyle::with_template(
                    "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
                );
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                bar.set_message(filename.to_owned());
                bar.set_length(total);
                bar.set_position(0);
            }
            Shown::Lines(lines) => {
                *lines = Lines {
                    file: filename.to_owned(),
                    total,
                    ..Lines::default()
                };
                tracing::info!(file = filename, size = %HumanBytes(total), "downloading");
            }
        }
    }

    fn update(&mut self, size: usize) {
        match &mut self.shown {
            Shown::Bar(bar) => bar.inc(size as u64),
            Shown::Lines(lines) => lines.add(size as u64),
        }
    }

    fn finish(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish();
        }
    }
}

impl Lines {
    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let tenths = self.done * 10 / self.total.max(1);
        if tenths > self.told && self.total >= SMALL {
            self.told = tenths;
            tracing::info!(file = self.file, percent = tenths * 10, "downloading");
        }
    }
}
