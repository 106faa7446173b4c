//! Faults on demand: at the n-th call of a function, or at the n-th task that a device runs.

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call answers, or the task ends with, this code.
    Code(i32),
    /// It never ends.
    Hang,
    /// The process ends.
    Die,
}

/// When it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A symbol, or `task`.
    place: String,
    /// Calls left until it happens; 0: it happened.
    left: u64,
    fault: Fault,
}

impl Rule {
    /// `SYMBOL:N`, N from 1 on.
    pub fn parse(text: &str, fault: Fault) -> Option<Self> {
        let (place, left) = text.rsplit_once(':')?;
        let left = left.parse().ok().filter(|n| *n > 0)?;
        Some(Self {
            place: place.to_owned(),
            left,
            fault,
        })
    }
}

/// Counts one call and says what is to happen at it.
pub fn count(rules: &mut [Rule], place: &str) -> Option<Fault> {
    let mut due = None;
    for rule in rules.iter_mut().filter(|r| r.place == place && r.left > 0) {
        rule.left -= 1;
        if rule.left == 0 {
            due = Some(rule.fault);
        }
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_comes_at_its_call_and_once() {
        let mut rules = vec![Rule::parse("aclrtMalloc:2", Fault::Code(207001)).expect("a rule")];
        assert_eq!(count(&mut rules, "aclrtMalloc"), None);
        assert_eq!(count(&mut rules, "aclrtFree"), None);
        assert_eq!(count(&mut rules, "aclrtMalloc"), Some(Fault::Code(207001)));
        assert_eq!(count(&mut rules, "aclrtMalloc"), None);
        assert_eq!(Rule::parse("aclrtMalloc:0", Fault::Hang), None);
    }
}
