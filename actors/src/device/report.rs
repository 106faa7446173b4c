//! What a device tells after a step: tokens to the sessions, load to the scheduler, counts to whoever listens.

use super::Device;
use super::inside::{Order, StepNews};
use crate::mailing::by_session;
use crate::messages::{LoadReport, Progress, Released};
use actix::{Context, Recipient};
use ropeteam_engine::device_core::{Load, SeqUpdate};
use ropeteam_engine::executor::DeviceFault;
use ropeteam_engine::ids::SeqId;
use ropeteam_engine::observe::{Event, StepDone};
use ropeteam_engine::scheduler;

/// Where the news of a sequence goes.
pub(super) struct Route {
    pub session: Recipient<Progress>,
    pub generated: u32,
}

impl Device {
    /// Passes on what a step brought.
    pub(super) fn report(
        &mut self,
        mut step: StepNews,
        ctx: &mut Context<Self>,
    ) -> Result<(), DeviceFault> {
        let updates = std::mem::take(&mut step.updates);
        let generated = updates.iter().map(|u| u.tokens.len() as u32).sum();
        self.deliver(updates, ctx)?;
        self.setup.pulse.beat(self.setup.clock.now());
        self.report_load(step.load);
        self.publish(step, generated);
        Ok(())
    }

    /// Sends each session its part of the step's news, in one message.
    fn deliver(
        &mut self,
        updates: Vec<SeqUpdate>,
        ctx: &mut Context<Self>,
    ) -> Result<(), DeviceFault> {
        let routes = &mut self.routes;
        let routed = updates.into_iter().filter_map(|update| {
            let route = routes.get_mut(&update.seq)?;
            route.generated += update.tokens.len() as u32;
            Some((route.session.clone(), update))
        });
        for (session, updates) in by_session(routed) {
            let open = session.connected();
            let seqs: Vec<_> = updates
                .iter()
                .map(|u| (u.seq, u.finish.is_some()))
                .collect();
            let (device, epoch) = (self.setup.device, self.setup.epoch);
            // Bound: once per step and session.
            session.do_send(Progress::Step {
                device,
                epoch,
                updates,
            });
            for (seq, finished) in seqs {
                if finished {
                    self.release(seq);
                } else if !open {
                    self.release(seq);
                    self.order(Order::Cancel(seq), ctx)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets a sequence that has ended here, or that nobody wants.
    pub(super) fn release(&mut self, seq: SeqId) {
        let Some(route) = self.routes.remove(&seq) else {
            return;
        };
        // Bound: once per assignment, since the route is gone now.
        self.setup
            .links
            .released
            .do_send(Released(scheduler::Released {
                device: self.setup.device,
                epoch: self.setup.epoch,
                seq,
                generated_tokens: route.generated,
            }));
    }

    /// Tells the scheduler how full the device is, if that changed.
    pub(super) fn report_load(&mut self, load: Load) {
        if self.reported.replace(load) == Some(load) {
            return;
        }
        let (device, epoch) = (self.setup.device, self.setup.epoch);
        // Bound: once per step at most, and when an idle device gets a cancellation.
        self.setup.links.load.do_send(LoadReport {
            device,
            epoch,
            load,
        });
    }

    fn publish(&self, step: StepNews, generated_tokens: u32) {
        let (device, epoch) = (self.setup.device, self.setup.epoch);
        let stats = step.stats;
        if !stats.preempted.is_empty() {
            let seqs = stats.preempted;
            self.setup.bus.publish(Event::Preempted { device, seqs });
        }
        let whole = self.setup.clock.now().since(step.began);
        self.setup.bus.publish(Event::StepDone(StepDone {
            device,
            epoch,
            counts: stats.counts,
            generated_tokens,
            duration: step.executor_time,
            engine_duration: whole.saturating_sub(step.executor_time),
        }));
    }
}
