//! The requests that are in the engine, so that they can be shown and ended by their ids. Locked for an insertion, a removal or a
//! copy of addresses, never across anything that waits.

use crate::generation::SessionView;
use crate::messages::{EndRequest, Snapshot};
use actix::Recipient;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All requests, in the order in which they came.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

/// Where a request can be reached.
#[derive(Clone)]
pub(crate) struct Entry {
    pub id: Arc<str>,
    pub view: Recipient<Snapshot<SessionView>>,
    pub end: Recipient<EndRequest>,
}

/// Keeps a request listed until it is dropped.
pub(crate) struct Listed {
    requests: Requests,
    key: u64,
}

impl Requests {
    /// Lists a request.
    pub fn enter(&self, entry: Entry) -> Listed {
        let mut table = self.table();
        let key = table.next;
        table.next += 1;
        table.entries.insert(key, entry);
        Listed {
            requests: self.clone(),
            key,
        }
    }

    /// All that are listed, oldest first.
    pub fn all(&self) -> Vec<Entry> {
        self.table().entries.values().cloned().collect()
    }

    /// A panic cannot leave the table half changed.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let entry = self.requests.table().entries.remove(&self.key);
        // Outside the lock: an address may be the last one of its actor.
        drop(entry);
    }
}
