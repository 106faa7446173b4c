//! What the scheduler does with the news of devices: lives that begin and end, loads, sequences that left.

use super::{DeviceAddress, Scheduler};
use crate::mailing::by_session;
use crate::messages::{
    Astray, DeviceDown, DeviceGone, DeviceUp, LoadReport, Progress, Released, Returned,
};
use crate::state::{EngineState, Limits};
use actix::{AsyncContext, Context, Handler};
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::observe::Event;
use ropeteam_engine::placement::Role;
use ropeteam_engine::scheduler::DeviceProfile;
use std::sync::Arc;

impl Scheduler {
    /// The sessions of these sequences are told that a life is over.
    fn interrupt(
        &mut self,
        seqs: Vec<SeqId>,
        (device, epoch): (DeviceId, Epoch),
        fault: &DeviceFault,
        ctx: &mut Context<Self>,
    ) {
        let sessions = &mut self.sessions;
        let wanted = seqs
            .into_iter()
            .filter_map(|seq| sessions.remove(&seq).map(|to| (to, seq)));
        for (session, seqs) in by_session(wanted) {
            let fault = fault.clone();
            self.astray += 1;
            let astray = Arc::new(Astray(ctx.address().recipient()));
            // Bound: once per session and life.
            session.do_send(Progress::Interrupted {
                seqs,
                device,
                epoch,
                fault,
                astray,
            });
        }
    }

    pub(super) fn update_state(&self, change: impl FnOnce(&mut EngineState)) {
        let (devices_up, devices_gone) = (self.devices.len(), self.gone.len());
        let held_back = |device: &&DeviceId| self.core.is_held_back(**device);
        let devices_held_back = self.devices.keys().filter(held_back).count();
        self.parts.state.send_modify(|state| {
            state.devices_up = devices_up;
            state.devices_held_back = devices_held_back;
            state.devices_gone = devices_gone;
            change(state);
        });
    }
}

impl Handler<Released> for Scheduler {
    type Result = ();

    fn handle(&mut self, Released(released): Released, ctx: &mut Context<Self>) {
        if self.core.released(released) {
            self.sessions.remove(&released.seq);
            self.settle(ctx);
        }
    }
}

impl Handler<LoadReport> for Scheduler {
    type Result = ();

    fn handle(&mut self, report: LoadReport, ctx: &mut Context<Self>) {
        let LoadReport {
            device,
            epoch,
            load,
        } = report;
        if self.devices.get(&device).is_some_and(|d| d.epoch == epoch) {
            self.core.load(device, epoch, load);
            self.parts.bus.publish(Event::Load {
                device,
                epoch,
                load,
            });
            self.settle(ctx);
        }
    }
}

impl Handler<DeviceUp> for Scheduler {
    type Result = ();

    fn handle(&mut self, up: DeviceUp, ctx: &mut Context<Self>) {
        let DeviceUp {
            device,
            epoch,
            capacity,
            assign,
            cancel,
        } = up;
        let limits = Limits::of(&capacity, self.parts.codec_vocab);
        let profile = DeviceProfile {
            capacity: capacity.clone(),
            max_running: self.parts.max_running,
            role: Role::Mixed,
        };
        let lost = self.core.device_up(device, epoch, profile);
        let detail = "replaced by its next life".to_owned();
        let fault = DeviceFault {
            kind: FaultKind::Requested,
            detail,
        };
        let former = Epoch(epoch.0.saturating_sub(1));
        self.interrupt(lost, (device, former), &fault, ctx);
        self.devices.insert(
            device,
            DeviceAddress {
                epoch,
                assign,
                cancel,
            },
        );
        self.gone.remove(&device);
        self.update_state(|state| {
            let roomier = |known: &Limits| known.longest_sequence() >= limits.longest_sequence();
            state.limits = Some(state.limits.filter(roomier).unwrap_or(limits));
        });
        self.parts.bus.publish(Event::DeviceUp {
            device,
            epoch,
            capacity,
        });
        self.settle(ctx);
    }
}

impl Handler<DeviceDown> for Scheduler {
    type Result = ();

    fn handle(&mut self, down: DeviceDown, ctx: &mut Context<Self>) {
        let DeviceDown {
            device,
            epoch,
            fault,
        } = down;
        if self
            .devices
            .get(&device)
            .is_some_and(|known| known.epoch > epoch)
        {
            return;
        }
        let lost = self.core.device_down(device, epoch);
        self.devices.remove(&device);
        self.failed.insert(device);
        let failed = self.failed.len();
        self.update_state(|state| {
            state.devices_failed = failed;
            state.last_fault = Some(fault.clone());
        });
        self.parts.bus.publish(Event::DeviceDied {
            device,
            epoch,
            cause: fault.kind,
            detail: fault.detail.clone(),
            interrupted: lost.clone(),
        });
        self.interrupt(lost, (device, epoch), &fault, ctx);
        self.settle(ctx);
    }
}

impl Handler<Returned> for Scheduler {
    type Result = ();

    fn handle(&mut self, Returned: Returned, ctx: &mut Context<Self>) {
        self.astray -= 1;
        self.settle(ctx);
    }
}

impl Handler<DeviceGone> for Scheduler {
    type Result = ();

    fn handle(&mut self, gone: DeviceGone, ctx: &mut Context<Self>) {
        let DeviceGone { device, returns } = gone;
        if !returns {
            self.core.device_gone(device);
        }
        self.gone.insert(device);
        self.update_state(|_| {});
        self.settle(ctx);
    }
}
