//! Faults and delays put around any executor, for tests and for the server's test hooks. No production path goes through here
//! unless such a hook is switched on.

use ropeteam_engine::executor::{Capacity, DeviceFault, FaultKind, ForkJoin, StepExecutor};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::plan::{Chunk, StepOutput, StepPlan};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What goes wrong in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The step returns a `DeviceFault`.
    Error,
    /// The step panics.
    Panic,
    /// The step does not return (until [`FaultPlan::release`]).
    Hang,
    /// The whole process ends in the step, as by a fault in a driver.
    Crash,
}

/// Which steps of a device go wrong. Steps are counted from 0 over all lives of the device, so that a plan outlives
/// the restarts it causes: share one plan among all executors that are built for the device.
#[derive(Debug, Default)]
pub struct FaultPlan {
    faults: BTreeMap<u64, Fault>,
    steps: AtomicU64,
    released: Mutex<bool>,
    release: Condvar,
}

impl FaultPlan {
    /// Each listed step goes wrong once, in its way.
    pub fn new(faults: impl IntoIterator<Item = (u64, Fault)>) -> Arc<Self> {
        Arc::new(FaultPlan {
            faults: faults.into_iter().collect(),
            ..FaultPlan::default()
        })
    }

    /// Steps begun so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Whether the coming step hangs; if so it counts as begun. Under a virtual clock nothing may block, so there a hang is a
    /// step of endless duration: ask this in the clock's step time.
    pub fn begin_hang(&self) -> bool {
        let hangs = self.faults.get(&self.steps()) == Some(&Fault::Hang);
        if hangs {
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
        hangs
    }

    /// Counts a step and says what is to go wrong in it.
    fn begin(&self) -> Option<Fault> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        self.faults.get(&step).copied()
    }

    /// Lets hanging steps return, with a fault, so that their threads can end.
    pub fn release(&self) {
        *self.released.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.release.notify_all();
    }

    fn wait_for_release(&self) {
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        let _released = self
            .release
            .wait_while(released, |released| !*released)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// Runs `inner`, except in the steps that its plan spoils.
pub struct FaultyExecutor {
    inner: Box<dyn StepExecutor>,
    plan: Arc<FaultPlan>,
}

impl FaultyExecutor {
    /// Wraps `inner`; give every life of one device the same `plan`.
    pub fn new(inner: Box<dyn StepExecutor>, plan: Arc<FaultPlan>) -> Self {
        FaultyExecutor { inner, plan }
    }
}

impl StepExecutor for FaultyExecutor {
    fn capacity(&self) -> Capacity {
        self.inner.capacity()
    }

    fn threads(&mut self) -> Option<&mut dyn ForkJoin> {
        self.inner.threads()
    }

    fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) -> Result<(), DeviceFault> {
        match self.plan.begin() {
            None => self.inner.step(plan, output),
            Some(fault) => Err(fail(fault, &self.plan)),
        }
    }
}

/// Goes wrong in that way; what it returns is an error's.
fn fail(fault: Fault, plan: &FaultPlan) -> DeviceFault {
    match fault {
        Fault::Error => {}
        Fault::Panic => panic!("injected panic"),
        Fault::Hang => plan.wait_for_release(),
        Fault::Crash => std::process::abort(),
    }
    DeviceFault {
        kind: FaultKind::Operator,
        detail: "injected fault".into(),
    }
}

/// Runs `inner`, but goes wrong in every step that begins with a certain sequence: a request that kills devices.
pub struct PoisonedExecutor {
    inner: Box<dyn StepExecutor>,
    poison: Vec<TokenId>,
    fault: Fault,
    /// Nobody releases what hangs here.
    never: FaultPlan,
}

impl PoisonedExecutor {
    /// Sequences whose tokens begin with `poison` are deadly in that way; with an empty one none is.
    pub fn new(inner: Box<dyn StepExecutor>, poison: Vec<TokenId>, fault: Fault) -> Self {
        PoisonedExecutor {
            inner,
            poison,
            fault,
            never: FaultPlan::default(),
        }
    }
}

impl StepExecutor for PoisonedExecutor {
    fn capacity(&self) -> Capacity {
        self.inner.capacity()
    }

    fn threads(&mut self) -> Option<&mut dyn ForkJoin> {
        self.inner.threads()
    }

    fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) -> Result<(), DeviceFault> {
        let is_deadly = |chunk: &Chunk| chunk.start == 0 && chunk.tokens.starts_with(&self.poison);
        match !self.poison.is_empty() && plan.chunks.iter().any(is_deadly) {
            true => Err(fail(self.fault, &self.never)),
            false => self.inner.step(plan, output),
        }
    }
}

/// How long a step takes.
pub type StepTime = Arc<dyn Fn(&StepPlan) -> Duration + Send + Sync>;

/// Runs `inner` and then blocks its thread for a while.
pub struct DelayedExecutor {
    inner: Box<dyn StepExecutor>,
    delay: StepTime,
}

impl DelayedExecutor {
    /// Every step of `inner` takes `delay(plan)` longer.
    pub fn new(inner: Box<dyn StepExecutor>, delay: StepTime) -> Self {
        DelayedExecutor { inner, delay }
    }
}

impl StepExecutor for DelayedExecutor {
    fn capacity(&self) -> Capacity {
        self.inner.capacity()
    }

    fn threads(&mut self) -> Option<&mut dyn ForkJoin> {
        self.inner.threads()
    }

    fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) -> Result<(), DeviceFault> {
        self.inner.step(plan, output)?;
        std::thread::sleep((self.delay)(plan));
        Ok(())
    }
}
