//! What a device holds during one life.

use crate::messages::Progress;
use actix::Recipient;
use ropeteam_engine::device_core::{DeviceCore, Load, SeqUpdate};
use ropeteam_engine::executor::StepExecutor;
use ropeteam_engine::ids::SeqId;
use ropeteam_engine::plan::StepOutput;
use ropeteam_engine::time::Time;
use std::collections::HashMap;
use std::time::Duration;

/// The core, the executor and where the news goes.
pub(super) struct Life {
    pub core: DeviceCore,
    pub executor: Box<dyn StepExecutor>,
    pub output: StepOutput,
    pub routes: HashMap<SeqId, Route>,
    pub reported: Load,
}

/// Where the news of a sequence goes.
pub(super) struct Route {
    pub session: Recipient<Progress>,
    pub generated: u32,
}

/// A step that went well.
pub(super) struct Turn {
    pub updates: Vec<SeqUpdate>,
    pub began: Time,
    pub executor_time: Duration,
}

impl Life {
    pub fn new(core: DeviceCore, executor: Box<dyn StepExecutor>) -> Self {
        Life {
            reported: core.load(),
            core,
            executor,
            output: StepOutput::default(),
            routes: HashMap::new(),
        }
    }
}
