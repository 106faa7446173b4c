//! What a device tells after a step: tokens to the sessions, load to the scheduler, counts to whoever listens.

use super::Device;
use super::life::Turn;
use crate::mailing::by_session;
use crate::messages::{LoadReport, Progress, Released};
use ropeteam_engine::device_core::SeqUpdate;
use ropeteam_engine::ids::SeqId;
use ropeteam_engine::observe::{Event, StepDone};
use ropeteam_engine::scheduler;

impl Device {
    /// Sends each session its part of the step's news, in one message.
    pub(super) fn deliver(&mut self, updates: Vec<SeqUpdate>) {
        let Some(life) = &mut self.life else { return };
        let routed = updates.into_iter().filter_map(|update| {
            let route = life.routes.get_mut(&update.seq)?;
            route.generated += update.tokens.len() as u32;
            Some((route.session.clone(), update))
        });
        for (session, updates) in by_session(routed) {
            let open = session.connected();
            let ended = |u: &&SeqUpdate| !open || u.finish.is_some();
            let ended: Vec<SeqId> = updates.iter().filter(ended).map(|u| u.seq).collect();
            let (device, epoch) = (self.setup.device, self.setup.epoch);
            // Bound: once per step and session.
            session.do_send(Progress::Step {
                device,
                epoch,
                updates,
            });
            for seq in ended {
                self.release(seq);
            }
        }
    }

    /// Forgets a sequence that has ended here, or that nobody wants.
    pub(super) fn release(&mut self, seq: SeqId) {
        let Some(life) = &mut self.life else { return };
        life.core.cancel(seq);
        let Some(route) = life.routes.remove(&seq) else {
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

    pub(super) fn report_load(&mut self) {
        let Some(life) = &mut self.life else { return };
        let (device, epoch) = (self.setup.device, self.setup.epoch);
        let load = life.core.load();
        if load != life.reported {
            life.reported = load;
            // Bound: once per step at most, and when an idle device gets a cancellation.
            self.setup.links.load.do_send(LoadReport {
                device,
                epoch,
                load,
            });
        }
    }

    pub(super) fn publish(&self, turn: &Turn, generated_tokens: u32) {
        let Some(life) = &self.life else { return };
        let (device, epoch) = (self.setup.device, self.setup.epoch);
        let stats = life.core.step_stats();
        if !stats.preempted.is_empty() {
            let seqs = stats.preempted.clone();
            self.setup.bus.publish(Event::Preempted { device, seqs });
        }
        let whole = self.setup.clock.now().since(turn.began);
        self.setup.bus.publish(Event::StepDone(StepDone {
            device,
            epoch,
            counts: stats.counts,
            generated_tokens,
            duration: turn.executor_time,
            engine_duration: whole.saturating_sub(turn.executor_time),
        }));
    }
}
