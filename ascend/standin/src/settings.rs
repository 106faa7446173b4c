//! What the stand-in pretends to be and which faults it makes: `key=value` pairs separated by `;`, from the variable
//! `ACL_STANDIN` at the first call and from `standinConfigure`.
//!
//! | key | value | default |
//! | --- | --- | --- |
//! | `soc` | name of the chip: `Ascend910B3` or `Ascend310P3` | `Ascend910B3` |
//! | `devices` | how many there are | 1 |
//! | `memory_mib` | memory of each, in MiB | 65536 |
//! | `schedule` | `lazy`: tasks run when somebody waits for them; `eager`: at once; `random:SEED`: those of other streams at any moment | `lazy` |
//! | `clock` | `virtual`: modelled time is counted; `real`: calls and waits take it | `virtual` |
//! | `compute` | `yes`; `no`: memory holds nothing and tasks take their time only | `yes` |
//! | `violations` | `keep`, `say` (on standard error) or `abort` | `say` |
//! | `fail` | `SYMBOL:N:CODE`: the N-th call from now fails; `task:N:CODE`: the N-th task does, and its device stays broken | |
//! | `hang` | `SYMBOL:N`: the N-th call never returns; `task:N`: the N-th task never ends | |
//! | `die` | `SYMBOL:N` or `task:N`: the process ends there | |
//! | `once` | a file that is not there yet: of all processes with this setting, only the first one at a fault makes it | |

use crate::fault::{Fault, Rule, count};
use std::fs::File;
use std::path::PathBuf;

/// What a violation leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnViolation {
    /// It is kept.
    Keep,
    /// It is kept and said.
    #[default]
    Say,
    /// It ends the process.
    Abort,
}

/// When tasks run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// As late as possible, other streams last.
    #[default]
    Lazy,
    /// When they are enqueued.
    Eager,
    /// Those of other streams whenever a die, thrown with this seed, says so.
    Random(u64),
}

/// What the stand-in pretends to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the chip.
    pub soc: String,
    /// Devices in the machine.
    pub devices: u32,
    /// Bytes of each device.
    pub memory_bytes: u64,
    /// When tasks run.
    pub schedule: Schedule,
    /// What a violation leads to.
    pub violations: OnViolation,
    /// Whether modelled time passes really.
    pub real_clock: bool,
    /// Whether tasks compute.
    pub computes: bool,
    /// Faults to make.
    pub rules: Vec<Rule>,
    /// Made by the process that makes a fault, which no other one makes then.
    pub once: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            soc: "Ascend910B3".to_owned(),
            devices: 1,
            memory_bytes: 64 << 30,
            schedule: Schedule::default(),
            violations: OnViolation::default(),
            real_clock: false,
            computes: true,
            rules: Vec::new(),
            once: None,
        }
    }
}

impl Settings {
    /// Changes what `text` names.
    ///
    /// # Errors
    /// Says which pair it does not understand.
    pub fn apply(&mut self, text: &str) -> Result<(), String> {
        for pair in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.set(key, value)
                .ok_or_else(|| format!("not understood: {pair}"))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match (key, value) {
            ("soc", "Ascend910B3" | "Ascend310P3") => self.soc = value.to_owned(),
            ("devices", _) => self.devices = value.parse().ok()?,
            ("memory_mib", _) => {
                self.memory_bytes = value.parse::<u64>().ok()?.checked_mul(1 << 20)?
            }
            ("schedule", "lazy") => self.schedule = Schedule::Lazy,
            ("schedule", "eager") => self.schedule = Schedule::Eager,
            ("schedule", _) => {
                let seed = value.strip_prefix("random:")?.parse().ok()?;
                self.schedule = Schedule::Random(seed);
            }
            ("clock", "virtual") => self.real_clock = false,
            ("clock", "real") => self.real_clock = true,
            ("compute", "yes") => self.computes = true,
            ("compute", "no") => self.computes = false,
            ("violations", "keep") => self.violations = OnViolation::Keep,
            ("violations", "say") => self.violations = OnViolation::Say,
            ("violations", "abort") => self.violations = OnViolation::Abort,
            ("fail", _) => {
                let (place, code) = value.rsplit_once(':')?;
                let fault = Fault::Code(code.parse().ok()?);
                self.rules.push(Rule::parse(place, fault)?);
            }
            ("hang", _) => self.rules.push(Rule::parse(value, Fault::Hang)?),
            ("once", _) => self.once = Some(PathBuf::from(value)),
            ("die", _) => self.rules.push(Rule::parse(value, Fault::Die)?),
            _ => return None,
        }
        Some(())
    }

    /// Counts one call and says what is to happen at it.
    pub fn fault_at(&mut self, place: &str) -> Option<Fault> {
        let due = count(&mut self.rules, place)?;
        let is_first = match &self.once {
            None => true,
            Some(file) => File::create_new(file).is_ok(),
        };
        is_first.then_some(due)
    }

    /// Whether the chip is one of the small inference chips, which lack bf16 and several operators.
    pub fn is_310p(&self) -> bool {
        self.soc.starts_with("Ascend310P")
    }

    /// Streams that one device can have.
    pub fn stream_limit(&self) -> usize {
        if self.is_310p() { 1024 } else { 1984 }
    }

    /// Events that one device can have.
    pub fn event_limit(&self) -> usize {
        if self.is_310p() { 1023 } else { 65536 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_change_what_they_name() {
        let mut settings = Settings::default();
        let text = "soc=Ascend310P3; devices=2;memory_mib=64;violations=keep;fail=aclrtMalloc:3:207001;hang=task:9";
        settings.apply(text).expect("understood");
        assert_eq!((settings.devices, settings.memory_bytes), (2, 64 << 20));
        assert!(settings.is_310p());
        assert_eq!(settings.rules.len(), 2);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for pair in [
            "devices=many",
            "fail=aclrtMalloc",
            "colour=red",
            "schedule=late",
        ] {
            let error = Settings::default().apply(pair).expect_err("refused");
            assert!(error.contains(pair), "{error}");
        }
    }
}
