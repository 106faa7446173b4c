//! What the measuring itself costs: the client must not be what limits a server.

use super::connections::Connections;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A busier client may hold its events up, and then measures itself.
const TOO_BUSY: f64 = 0.8;

/// What the client took during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientCost {
    /// Processor time, where the system tells it.
    pub cpu_s: Option<f64>,
    /// The same as a share of one core, which is all that the client uses.
    pub core_share: Option<f64>,
    /// Connections opened.
    pub connections: u64,
    /// Requests sent again because the server had closed their kept connection.
    pub resent: u64,
}

/// Processor time of this process so far.
fn processor_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let nanos = u32::try_from(time.tv_nsec).ok()?;
        Some(Duration::new(u64::try_from(time.tv_sec).ok()?, nanos))
    }
    #[cfg(not(unix))]
    None
}

/// The counts at the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    processor: Option<Duration>,
    connections: u64,
    resent: u64,
}

impl Meter {
    /// Starts counting.
    pub fn start(connections: &Connections) -> Self {
        Meter {
            processor: processor_time(),
            connections: connections.opened(),
            resent: connections.resent(),
        }
    }

    /// What was taken since, during a run of `wall`.
    pub fn stop(self, connections: &Connections, wall: Duration) -> ClientCost {
        let spent = self.processor.zip(processor_time());
        let spent = spent.map(|(before, after)| after.saturating_sub(before).as_secs_f64());
        let wall = wall.as_secs_f64();
        ClientCost {
            cpu_s: spent,
            core_share: spent.filter(|_| wall > 0.0).map(|spent| spent / wall),
            connections: connections.opened() - self.connections,
            resent: connections.resent() - self.resent,
        }
    }
}

impl ClientCost {
    /// In words, for a run of so many events.
    pub fn text(&self, events: u64) -> String {
        let opened = format!("connections opened: {}", self.connections);
        let Some((spent, share)) = self.cpu_s.zip(self.core_share) else {
            return opened;
        };
        let each = match events {
            0 => String::new(),
            _ => format!(" ({:.1} us per event)", spent * 1e6 / events as f64),
        };
        format!("{:.1} % of one core{each}, {opened}", share * 100.0)
    }

    /// Whether the figures may be the client's and not the server's.
    pub fn is_suspicious(&self) -> bool {
        self.core_share.is_some_and(|share| share > TOO_BUSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_told_per_event_where_there_are_events() {
        let mut cost = ClientCost {
            cpu_s: Some(0.5),
            core_share: Some(0.25),
            connections: 3,
            resent: 0,
        };
        let text = cost.text(100_000);
        assert_eq!(
            text,
            "25.0 % of one core (5.0 us per event), connections opened: 3"
        );
        assert_eq!(cost.text(0), "25.0 % of one core, connections opened: 3");
        (cost.cpu_s, cost.connections) = (None, 1);
        assert_eq!(cost.text(5), "connections opened: 1");
        assert!(!cost.is_suspicious());
        cost.core_share = Some(0.9);
        assert!(cost.is_suspicious());
    }
}
