//! The list of broken rules. A violation is remembered (and said on standard error) or ends the process, as the settings say.

use crate::settings::OnViolation;

/// Violations until somebody takes them.
#[derive(Debug, Default)]
pub struct Violations {
    /// What follows from one.
    pub policy: OnViolation,
    list: Vec<String>,
}

impl Violations {
    /// Remembers that `call` broke a rule.
    pub fn report(&mut self, call: &str, text: &str) {
        let line = format!("{call}: {text}");
        match self.policy {
            OnViolation::Keep => {}
            OnViolation::Say => eprintln!("ascend stand-in: {line}"),
            OnViolation::Abort => {
                eprintln!("ascend stand-in: {line}");
                std::process::abort();
            }
        }
        self.list.push(line);
    }

    /// Hands them out and forgets them.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.list)
    }
}
