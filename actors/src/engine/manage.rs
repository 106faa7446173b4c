//! What an operator, or the embedding application, does to a running engine. Each call is told on the bus.

use super::Engine;
use crate::config::LiveConfig;
use crate::generation::SessionView;
use crate::messages::{Drain, DrainOutcome, EndRequest, HoldBack, Reconfigure, Restart, Snapshot};
use futures_util::future::join_all;
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::observe::Event;
use std::time::Duration;

impl Engine {
    /// Starts a device anew; what it runs goes on by replay. Returns false if there is no such device.
    pub async fn restart(&self, device: DeviceId) -> bool {
        self.told("restart", format!("device {device}"));
        let restart = self.supervisor.send(Restart { device });
        restart.await.unwrap_or(false)
    }

    /// Gives a device no new work, also in its lives to come; what it runs goes on. Returns false if there is no such device.
    pub async fn drain_device(&self, device: DeviceId) -> bool {
        self.told("drain_device", format!("device {device}"));
        self.hold_back(device, true).await
    }

    /// Gives a drained device work again. Returns false if there is no such device.
    pub async fn resume_device(&self, device: DeviceId) -> bool {
        self.told("resume_device", format!("device {device}"));
        self.hold_back(device, false).await
    }

    async fn hold_back(&self, device: DeviceId, hold: bool) -> bool {
        let message = HoldBack { device, hold };
        self.shared.scheduler.send(message).await.unwrap_or(false)
    }

    /// The requests in the engine, oldest first.
    pub async fn requests(&self) -> Vec<SessionView> {
        let views = self
            .shared
            .requests
            .all()
            .into_iter()
            .map(|entry| async move {
                // A session that ends meanwhile is left out.
                entry.view.send(Snapshot::new()).await.ok()
            });
        join_all(views).await.into_iter().flatten().collect()
    }

    /// Ends the requests whose ids `is_meant` accepts; each fails with [`RequestError::Cancelled`]. Returns how many.
    ///
    /// [`RequestError::Cancelled`]: crate::generation::RequestError::Cancelled
    pub fn cancel(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        let mut count = 0;
        for entry in self.shared.requests.all() {
            if is_meant(&entry.id) {
                self.told("cancel", entry.id.to_string());
                // Bound: an operator's patience.
                entry.end.do_send(EndRequest);
                count += 1;
            }
        }
        count
    }

    /// The limits that hold now.
    pub fn live(&self) -> LiveConfig {
        self.shared.live()
    }

    /// Other limits from now on, without a restart: devices take them between two steps, the queue and new requests at once.
    pub fn reconfigure(&self, live: LiveConfig) {
        let (before, after) = (self.live(), &live);
        if before == *after {
            return;
        }
        self.told("reconfigure", format!("{before:?} -> {after:?}"));
        self.shared.set_live(live.clone());
        // Bound: an operator's patience.
        self.supervisor.do_send(Reconfigure(live.clone()));
        self.shared.scheduler.do_send(Reconfigure(live));
    }

    /// Admits nothing more and returns when all that was admitted, waiting or running, has ended; what has not by then ends
    /// with [`RequestError::Draining`](crate::generation::RequestError::Draining) after `within`.
    pub async fn drain(&self, within: Duration) -> DrainOutcome {
        self.told("drain", format!("within {within:?}"));
        let drain = self.shared.scheduler.send(Drain { within });
        drain.await.unwrap_or_default()
    }

    fn told(&self, call: &'static str, subject: String) {
        self.shared.bus.publish(Event::Managed { call, subject });
    }
}
