//! Makes a record while the events of its request go by; the record is kept when the last of them has, or when nobody waits for more.

use super::record::Record;
use super::{Records, lock};
use futures_util::Stream;
use ropeteam_actors::generation::{GenerateEvent, Generation};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

/// A record in the making.
pub struct Tape {
    records: Records,
    record: Arc<Mutex<Record>>,
}

impl Tape {
    pub(super) fn new(records: Records, record: Record) -> Self {
        let id = record.id.clone();
        let record = Arc::new(Mutex::new(record));
        records.shared.boxes.begin(&id, &record);
        Tape { records, record }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        let sealed = lock(&self.record).sealed();
        self.records.keep(&sealed);
    }
}

/// The events of a request, recorded or not. Dropping it cancels the request.
pub struct Taped {
    events: Generation,
    tape: Option<Tape>,
}

impl Taped {
    /// Events that are recorded on the tape, if there is one.
    pub(crate) fn new(events: Generation, tape: Option<Tape>) -> Self {
        Taped { events, tape }
    }
}

impl Stream for Taped {
    type Item = GenerateEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<GenerateEvent>> {
        let event = ready!(Pin::new(&mut self.events).poll_next(cx));
        if let (Some(tape), Some(event)) = (&self.tape, &event) {
            lock(&tape.record).take(event);
        }
        Poll::Ready(event)
    }
}
