//! How tenants share the devices: each is in a class, a class has a weight and maybe a bound on what one of its tenants runs at once.
//! Not here: whose turn it is (`queue.rs`).

use std::collections::BTreeMap;

/// The classes, and which tenant is in which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fairness {
    /// The class of each tenant that is named; the others are in `others`.
    pub tenants: BTreeMap<String, Class>,
    /// The class of everybody else.
    pub others: Class,
}

/// What a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its share beside those of the others that have something waiting; at least 1, and 0 counts as 1.
    pub weight: u32,
    /// Most sequences of one tenant on devices at once; `None`: as many as there is room for. A bound leaves places free, so that
    /// another tenant's first sequence need not wait for one of these to end.
    pub max_running: Option<usize>,
}

impl Default for Class {
    fn default() -> Self {
        Class {
            weight: 1,
            max_running: None,
        }
    }
}

impl Fairness {
    /// The class of a tenant.
    pub fn class_of(&self, tenant: &str) -> Class {
        self.tenants.get(tenant).copied().unwrap_or(self.others)
    }
}

impl Class {
    /// What counts as one token at weight 1.
    pub(crate) const UNIT: u64 = 1 << 10;

    /// What so many tokens cost a tenant: the less the greater its weight.
    pub(crate) fn cost(self, tokens: u64) -> u64 {
        tokens.saturating_mul(Self::UNIT) / u64::from(self.weight.max(1))
    }

    /// Whether a tenant with so many sequences in service may have one more.
    pub(crate) fn allows(self, in_service: usize) -> bool {
        self.max_running.is_none_or(|most| in_service < most)
    }
}
