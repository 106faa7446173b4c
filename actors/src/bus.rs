//! Events to whoever listens: metrics, request log, dashboard, an embedding application. Publishing never waits. Each subscriber
//! has the last `capacity` events to read; one that falls further behind loses the oldest and learns how many.

use ropeteam_engine::observe::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};

/// The publishing end; clones publish to the same subscribers.
#[derive(Clone, Debug)]
pub struct Bus {
    events: broadcast::Sender<Arc<Event>>,
    lost: Arc<AtomicU64>,
}

impl Bus {
    /// A bus that keeps so many events for its slowest subscriber.
    pub fn new(capacity: usize) -> Self {
        Bus {
            events: broadcast::Sender::new(capacity.max(1)),
            lost: Arc::default(),
        }
    }

    /// Tells all subscribers. Returns at once, whether anybody listens or not.
    pub fn publish(&self, event: Event) {
        // An error says that nobody listens, which is nobody's fault.
        let _ = self.events.send(Arc::new(event));
    }

    /// Listens from now on.
    pub fn subscribe(&self) -> Subscription {
        Subscription {
            events: self.events.subscribe(),
            lost: 0,
            lost_by_all: self.lost.clone(),
        }
    }

    /// Events that slow subscribers lost, all together. A loss is counted when its subscriber reads again.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Subscription {
    events: broadcast::Receiver<Arc<Event>>,
    lost: u64,
    lost_by_all: Arc<AtomicU64>,
}

impl Subscription {
    /// Waits for the next event; `None` when the engine is gone.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            match self.events.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(count)) => self.count_loss(count),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Arc<Event>> {
        loop {
            match self.events.try_recv() {
                Ok(event) => return Some(event),
                Err(TryRecvError::Lagged(count)) => self.count_loss(count),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    /// Events this subscriber lost because it was slow.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn count_loss(&mut self, count: u64) {
        self.lost += count;
        self.lost_by_all.fetch_add(count, Ordering::Relaxed);
    }
}
