//! A device as the scheduler sees it: which life it is in, what it may still be given, what it holds.

use super::DeviceProfile;
use crate::credits::Credits;
use crate::executor::LengthLimit;
use crate::ids::{Epoch, SeqId};
use crate::work::Work;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A device that is up or may come back.
#[derive(Debug)]
pub(super) struct Device {
    /// Its present or last life.
    pub epoch: Epoch,
    /// Whether that life goes on.
    pub up: bool,
    pub profile: DeviceProfile,
    pub credits: Credits,
    /// The sequences it holds, with their tenants.
    pub held: BTreeMap<SeqId, Arc<str>>,
}

impl Device {
    pub fn new(epoch: Epoch, profile: DeviceProfile) -> Self {
        Device {
            epoch,
            up: true,
            credits: Credits::new(&profile.capacity, profile.max_running),
            profile,
            held: BTreeMap::new(),
        }
    }

    pub fn length_limit(&self) -> LengthLimit {
        self.profile.capacity.length_limit()
    }

    /// Whether it can be given the work now.
    pub fn takes(&self, work: &Work) -> bool {
        let tokens = work.len_tokens();
        self.up
            && self.profile.role.takes_new()
            && tokens < self.length_limit().tokens as usize
            && self.credits.cover(tokens)
    }
}
