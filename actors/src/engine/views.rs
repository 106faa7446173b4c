//! What the engine shows of itself to people: management routes, dashboards, logs.

use super::Engine;
use crate::messages::Snapshot;
use crate::metrics::MetricsView;
use crate::state::EngineState;
use crate::supervisor::{LivesView, LivingDevices, SupervisorView};
use ropeteam_engine::device_core::{DeviceSnapshot, Load};
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::placement::Role;
use ropeteam_engine::scheduler::SchedulerSnapshot;
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A device that is in the middle of a step answers within this time, or its view is left out.
const VIEW_WITHIN: Duration = Duration::from_secs(2);

/// What the engine is doing, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineView {
    /// Readiness and limits.
    pub state: EngineState,
    /// The queue and the device table.
    pub scheduler: Option<SchedulerSnapshot>,
    /// The lives of the devices.
    pub supervisor: Option<SupervisorView>,
    /// What is on the devices; one that does not answer in time is left out.
    pub devices: Vec<(DeviceId, DeviceSnapshot)>,
    /// Totals and rates.
    pub metrics: Option<MetricsView>,
    /// Requests in the engine.
    pub sessions: usize,
    /// Events that slow subscribers of the bus lost.
    pub lost_events: u64,
}

/// One device, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceStatus {
    /// Its lives.
    #[serde(flatten)]
    pub lives: LivesView,
    /// What it is used for; `None` before it was first up.
    pub role: Option<Role>,
    /// Whether it gets no new work by an operator's wish.
    pub held_back: bool,
    /// Sequences on it.
    pub running: usize,
    /// Its last reported load; `None` before it was first up.
    pub load: Option<Load>,
}

impl Engine {
    /// The devices and how they fare.
    pub async fn devices(&self) -> Vec<DeviceStatus> {
        let (lives, scheduler) = tokio::join!(
            self.supervisor.send(Snapshot::<SupervisorView>::new()),
            self.shared
                .scheduler
                .send(Snapshot::<SchedulerSnapshot>::new()),
        );
        let table = scheduler.map(|s| s.devices).unwrap_or_default();
        let lives = lives.map(|s| s.devices).unwrap_or_default();
        let status = |lives: LivesView| {
            let known = table.iter().find(|d| d.device == lives.device);
            DeviceStatus {
                role: known.map(|d| d.role),
                held_back: known.is_some_and(|d| d.held_back),
                running: known.map_or(0, |d| d.running),
                load: known.map(|d| d.load),
                lives,
            }
        };
        lives.into_iter().map(status).collect()
    }

    /// The queue and the device table.
    pub async fn queue(&self) -> Option<SchedulerSnapshot> {
        let view = Snapshot::<SchedulerSnapshot>::new();
        self.shared.scheduler.send(view).await.ok()
    }

    /// Requests in the engine.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.load(Ordering::Relaxed)
    }

    /// Totals and rates. When they come, the `metrics` recorder is up to date with all that was published before the call.
    pub async fn metrics(&self) -> Option<MetricsView> {
        self.metrics.send(Snapshot::<MetricsView>::new()).await.ok()
    }

    /// Everything there is to see.
    pub async fn snapshot(&self) -> EngineView {
        let (scheduler, supervisor, metrics, living) = tokio::join!(
            self.shared
                .scheduler
                .send(Snapshot::<SchedulerSnapshot>::new()),
            self.supervisor.send(Snapshot::<SupervisorView>::new()),
            self.metrics(),
            self.supervisor.send(LivingDevices),
        );
        let mut devices = Vec::new();
        for (device, actor) in living.unwrap_or_default() {
            let view = actor
                .send(Snapshot::<Option<DeviceSnapshot>>::new())
                .timeout(VIEW_WITHIN);
            if let Ok(Some(view)) = view.await {
                devices.push((device, view));
            }
        }
        EngineView {
            state: self.state(),
            scheduler: scheduler.ok(),
            supervisor: supervisor.ok(),
            devices,
            metrics,
            sessions: self.shared.sessions.load(Ordering::Relaxed),
            lost_events: self.shared.bus.lost(),
        }
    }
}
