//! The session's end of the client's channel: bounded, never waited for, with places kept back for the last events.

use crate::generation::GenerateEvent;
use tokio::sync::mpsc;

/// Sends events to one client. Its session is the only sender.
pub(crate) struct Outlet {
    events: mpsc::Sender<GenerateEvent>,
    /// Places that only last events may take: one per choice, one for a failure.
    kept_back: usize,
}

impl Outlet {
    /// A channel for `buffer` events of each of so many choices, beside their last ones.
    pub fn new(buffer: usize, choices: u32) -> (Self, mpsc::Receiver<GenerateEvent>) {
        let kept_back = choices as usize + 1;
        let room = buffer.max(1).saturating_mul(choices.max(1) as usize);
        let (events, receiver) = mpsc::channel(room + kept_back);
        (Outlet { events, kept_back }, receiver)
    }

    /// Whether an event that others follow may be sent; if not, the client does not read fast enough.
    pub fn has_room(&self) -> bool {
        self.events.capacity() > self.kept_back
    }

    /// Sends the last event of a choice, or of the request. Its place was kept.
    pub fn conclude(&mut self, event: GenerateEvent) {
        self.kept_back = self.kept_back.saturating_sub(1);
        self.send(event);
    }

    /// Sends an event; the caller has made sure that there is room.
    pub fn send(&self, event: GenerateEvent) {
        // So an error says that the client has left, and `gone` tells that.
        let _ = self.events.try_send(event);
    }

    /// Completes when the client has left.
    pub fn gone(&self) -> impl Future<Output = ()> + 'static {
        let events = self.events.clone();
        async move { events.closed().await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::RequestError;

    #[test]
    fn last_events_find_room_when_the_client_does_not_read() {
        let (mut outlet, mut receiver) = Outlet::new(2, 1);
        let event = || GenerateEvent::Failed(RequestError::Draining);
        for _ in 0..2 {
            assert!(outlet.has_room());
            outlet.send(event());
        }
        assert!(!outlet.has_room());
        outlet.conclude(event());
        outlet.conclude(event());
        drop(outlet);
        let mut count = 0;
        while receiver.blocking_recv().is_some() {
            count += 1;
        }
        assert_eq!(count, 4);
    }
}
