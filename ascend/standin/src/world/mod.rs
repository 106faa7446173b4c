//! The state behind the calls: one world per loaded library. Each part of it has a file with its rules.

mod captures;
mod contexts;
mod copies;
mod devices;
mod events;
mod graphs;
mod keys;
mod launches;
mod peers;
mod storage;
mod streams;

pub use contexts::Context;
pub use copies::{Copy, Fill};
pub use devices::Device;
pub use events::{Event, EventKind};
pub use keys::KEY_BYTES;
pub use launches::Launch;
pub use streams::Stream;

use captures::Capture;
use graphs::{Graph, Update};
use keys::Shared;

use crate::clock::{Actor, Clock, Epoch, HOST};
use crate::memory::Memory;
use crate::objects::Objects;
use crate::operators::Executor;
use crate::owners::Owners;
use crate::settings::{Schedule, Settings};
use crate::task::{Access, Id, Reach};
use crate::timing::Microseconds;
use crate::violations::Violations;
use std::collections::{BTreeMap, BTreeSet};

/// Whether AscendCL runs in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// `aclInit` was not called yet.
    New,
    /// It runs.
    Running,
    /// `aclFinalize` was called.
    Ended,
}

/// Everything.
pub struct World {
    /// What it pretends to be.
    pub settings: Settings,
    /// Whether AscendCL runs.
    pub process: Process,
    /// Broken rules.
    pub violations: Violations,
    /// Visible devices by logical number.
    pub devices: Vec<Device>,
    /// Contexts by handle.
    pub contexts: BTreeMap<Id, Context>,
    /// Streams by handle.
    pub streams: BTreeMap<Id, Stream>,
    /// Events by handle.
    pub events: BTreeMap<Id, Event>,
    /// Tensors, numbers, arrays and lists.
    pub objects: Objects,
    /// Operators that were prepared.
    pub executors: BTreeMap<Id, Executor>,
    /// Captures under way.
    captures: BTreeMap<Id, Capture>,
    /// Captured graphs.
    graphs: BTreeMap<Id, Graph>,
    /// Groups being updated, by the stream that does it.
    updates: BTreeMap<Id, Update>,
    /// All memory.
    pub memory: Memory,
    /// Pairs of physical devices (who, whose) with peer access.
    pub peers: BTreeSet<(u32, u32)>,
    /// Memory that others may have, by key.
    keys: BTreeMap<String, Shared>,
    /// Whose blocks of caches are whose.
    pub owners: Owners,
    /// When the call under way will have been made.
    pub now: Microseconds,
    /// When what it waits for is done.
    pub wake: Option<Microseconds>,
    /// Time that all devices spent on tasks, dispatch left out.
    pub busy: Microseconds,
    /// What the host knows.
    host: Clock,
    /// State of the die that mixes streams; whether it is being thrown.
    die: Option<u64>,
    next_handle: Id,
    next_actor: Actor,
}

/// Handles are numbers that no processor accepts as a pointer, and none comes twice.
const HANDLE_TAG: u64 = 0x00B0 << 48;

impl World {
    /// As the variable `ACL_STANDIN` says.
    pub fn from_environment() -> Self {
        let mut settings = Settings::default();
        let mut violations = Violations::default();
        let text = std::env::var("ACL_STANDIN").unwrap_or_default();
        if let Err(error) = settings.apply(&text) {
            violations.report("ACL_STANDIN", &error);
        }
        let mut world = Self {
            settings,
            process: Process::New,
            violations,
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            objects: Objects::default(),
            executors: BTreeMap::new(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            updates: BTreeMap::new(),
            memory: Memory::default(),
            peers: BTreeSet::new(),
            keys: BTreeMap::new(),
            owners: Owners::default(),
            now: 0.0,
            wake: None,
            busy: 0.0,
            host: Clock::default(),
            die: None,
            next_handle: HANDLE_TAG,
            next_actor: HOST + 1,
        };
        world.settle();
        world
    }

    /// Takes changed settings up.
    pub fn settle(&mut self) {
        self.violations.policy = self.settings.violations;
        self.memory.hollow = !self.settings.computes;
        self.die = match self.settings.schedule {
            Schedule::Random(seed) => Some(seed.wrapping_mul(2).wrapping_add(1)),
            _ => None,
        };
    }

    /// A handle that nobody had before.
    pub fn fresh_handle(&mut self) -> Id {
        self.next_handle += 16;
        self.next_handle
    }

    fn fresh_actor(&mut self) -> Actor {
        self.next_actor += 1;
        self.next_actor
    }

    /// Lets the host itself touch memory, in the order of what it knows.
    fn as_host<T>(&mut self, call: &'static str, body: impl FnOnce(&mut Access<'_>) -> T) -> T {
        let at = Epoch {
            actor: HOST,
            tick: self.host.advance(HOST),
            call,
        };
        let clock = self.host.clone();
        body(&mut Access {
            memory: &mut self.memory,
            violations: &mut self.violations,
            reach: Reach {
                device: None,
                peers: &self.peers,
            },
            at,
            clock: &clock,
            bad_address: ropeteam_acl_sys::code::ACL_ERROR_RT_PARAM_INVALID,
            owners: &self.owners,
            readers: Vec::new(),
        })
    }
}
