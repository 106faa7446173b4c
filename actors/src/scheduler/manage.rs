//! What operators change while the scheduler runs: which devices get work, and its bounds.

use super::Scheduler;
use crate::messages::{HoldBack, Reconfigure};
use actix::{Context, Handler};
use ropeteam_engine::scheduler::SchedulerLimits;

impl Handler<HoldBack> for Scheduler {
    type Result = bool;

    fn handle(&mut self, HoldBack { device, hold }: HoldBack, ctx: &mut Context<Self>) -> bool {
        if !self.parts.devices.contains(&device) {
            return false;
        }
        match hold {
            true => self.core.hold_back(device),
            false => self.core.let_on(device),
        }
        self.update_state(|_| {});
        self.settle(ctx);
        true
    }
}

impl Handler<Reconfigure> for Scheduler {
    type Result = ();

    fn handle(&mut self, Reconfigure(live): Reconfigure, ctx: &mut Context<Self>) {
        self.parts.max_running = live.batching.max_decode_batch_size;
        let limits = SchedulerLimits {
            max_queue: live.max_queue,
        };
        self.core.set_limits(limits, self.parts.max_running);
        self.core.set_fairness(live.fairness);
        ctx.set_mailbox_capacity(live.max_requests + super::MAILBOX_SPARE);
        self.settle(ctx);
    }
}
