//! How far a command is: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// Shows how far; it vanishes with the last of it.
pub struct Meter(ProgressBar);

impl Meter {
    /// Of `total`, called `what`.
    pub fn new(total: usize, what: &'static str) -> Self {
        let bar = ProgressBar::new(total as u64).with_message(what);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// So much is done.
    pub fn at(&self, done: usize) {
        self.0.set_position(done as u64);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
