//! Work in a stream's queue, and the memory as that work sees it: every access is checked for being allocated, written and ordered.

use crate::clock::{Clock, Epoch};
use crate::fail::{Fail, mistake};
use crate::host_function::HostFunction;
use crate::memory::{Block, Home, Memory, Span};
use crate::owners::Owners;
use crate::shadow::Findings;
use crate::timing::{Cost, Microseconds};
use crate::violations::Violations;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// What a task computes. It can run more than once: a graph repeats it.
pub type Run = Arc<dyn Fn(&mut Access<'_>) -> Result<(), Fail> + Send + Sync>;

/// Number of a handle.
pub type Id = u64;

/// What a task is.
#[derive(Clone)]
pub enum Work {
    /// It computes or copies.
    Run(Run),
    /// It calls a function of the host.
    Host(HostFunction),
    /// It marks an event.
    Record(Id),
    /// It waits for the task of that number of another stream.
    Wait {
        /// The event that marks it.
        event: Id,
        /// The other stream.
        stream: Id,
        /// Tasks of it that must be done.
        tasks: u64,
    },
    /// It takes an event's mark away.
    Reset(Id),
}

/// A task in a queue.
#[derive(Clone)]
pub struct Task {
    /// What it may touch, for the check whether memory can be freed.
    pub spans: Vec<Span>,
    /// When it comes in everybody's order.
    pub at: Epoch,
    /// What it knows.
    pub clock: Clock,
    /// What it does.
    pub work: Work,
    /// What that costs.
    pub cost: Cost,
    /// When the host had asked for it.
    pub ready_at: Microseconds,
}

/// The memory as one piece of work sees it.
pub struct Access<'w> {
    /// All of it.
    pub memory: &'w mut Memory,
    /// Where broken rules go.
    pub violations: &'w mut Violations,
    /// Whose memory the worker may touch: device, and others it was let into.
    pub reach: Reach<'w>,
    /// Who works.
    pub at: Epoch,
    /// What the worker knows.
    pub clock: &'w Clock,
    /// Code for an address that is none.
    pub bad_address: i32,
    /// Whose blocks of caches are whose.
    pub owners: &'w Owners,
    /// Owners behind an attention's sequences.
    pub readers: Vec<u64>,
}

/// Which devices' memory a worker may touch.
#[derive(Clone, Copy)]
pub struct Reach<'w> {
    /// Its own; `None` for the host, which copies for all.
    pub device: Option<u32>,
    /// Pairs (device, other) between which access was enabled.
    pub peers: &'w BTreeSet<(u32, u32)>,
}

impl Reach<'_> {
    fn allows(&self, home: Home) -> bool {
        match (self.device, home) {
            (None, _) | (_, Home::Host) => true,
            (Some(own), Home::Device(other)) => own == other || self.peers.contains(&(own, other)),
        }
    }
}

impl Access<'_> {
    /// The bytes of a span.
    ///
    /// # Errors
    /// When they are not allocated or out of reach. Bytes never written and races are reported and read all the same.
    pub fn read(&mut self, span: Span) -> Result<&[u8], Fail> {
        if span.len == 0 {
            return Ok(&[]);
        }
        let (at, clock) = (self.at, self.clock);
        let range = self.check(span, "reads")?;
        let findings = self.block(span)?.shadow.read(range.clone(), at, clock);
        self.report(span, "reads", findings);
        Ok(&self.block(span)?.bytes()[range])
    }

    /// The bytes of a span, all of which the worker writes.
    ///
    /// # Errors
    /// When they are not allocated or out of reach. Races are reported and written all the same.
    pub fn write(&mut self, span: Span) -> Result<&mut [u8], Fail> {
        if span.len == 0 {
            return Ok(&mut []);
        }
        let (at, clock) = (self.at, self.clock);
        let range = self.check(span, "writes")?;
        let findings = self.block(span)?.shadow.write(range.clone(), at, clock);
        self.report(span, "writes", findings);
        Ok(&mut self.block(span)?.bytes_mut()[range])
    }

    /// Makes the values of a span undefined: nobody may read them before they are written again.
    ///
    /// # Errors
    /// As `write`.
    pub fn scramble(&mut self, span: Span) -> Result<(), Fail> {
        if span.len == 0 {
            return Ok(());
        }
        self.write(span)?.fill(crate::memory::POISON);
        let range = self.check(span, "writes")?;
        self.block(span)?.shadow.forget(range);
        Ok(())
    }

    fn block(&mut self, span: Span) -> Result<&mut Block, Fail> {
        let code = self.bad_address;
        let found = self.memory.find_mut(span.address);
        found
            .map(|(_, block)| block)
            .ok_or_else(|| mistake(code, format!("{span} are no allocation")))
    }

    /// The span inside its allocation.
    fn check(&self, span: Span, verb: &str) -> Result<Range<usize>, Fail> {
        let fail = |text| mistake(self.bad_address, text);
        let Some((base, block)) = self.memory.find(span.address) else {
            return Err(fail(format!(
                "{verb} {span}, which are not allocated (any more)"
            )));
        };
        let start = (span.address - base) as usize;
        let end = start.saturating_add(span.len);
        if end > block.len() {
            let room = block.len();
            return Err(fail(format!(
                "{verb} {span}, byte {start} to {end} of an allocation of {room} with padding"
            )));
        }
        if !self.reach.allows(block.home) {
            let home = block.home;
            return Err(fail(format!(
                "{verb} {span} of {home:?} without peer access to it"
            )));
        }
        Ok(start..end)
    }

    fn report(&mut self, span: Span, verb: &str, findings: Findings) {
        let call = self.at.call;
        if let Some(range) = findings.unwritten {
            let text = format!("{verb} {span} of which byte {range:?} was never written");
            self.violations.report(call, &text);
        }
        if let Some(other) = findings.race {
            let text = format!("{verb} {span}, and nothing orders this and {}", other.call);
            self.violations.report(call, &text);
        }
    }
}
