//! Running requests that `stopInfer` may end, by the id that their client gave them. The tickets are held by the running requests, so an
//! entry lives exactly as long as its request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

type Entries = HashMap<Key, Vec<Arc<watch::Sender<bool>>>>;

/// Whose request it is, and what they call it: nobody ends another tenant's requests.
type Key = (String, String);

/// All of them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stoppable(Arc<Mutex<Entries>>);

/// Held by a running request.
#[derive(Debug)]
pub struct Ticket {
    all: Stoppable,
    key: Key,
    stopped: Arc<watch::Sender<bool>>,
}

impl Stoppable {
    /// Notes a running request; several may have the same id.
    pub fn register(&self, tenant: &str, id: &str) -> Ticket {
        let key = (tenant.to_owned(), id.to_owned());
        let stopped = Arc::new(watch::Sender::new(false));
        self.entries()
            .entry(key.clone())
            .or_default()
            .push(stopped.clone());
        Ticket {
            all: self.clone(),
            key,
            stopped,
        }
    }

    /// Ends the tenant's requests with that id. False when there are none.
    pub fn stop(&self, tenant: &str, id: &str) -> bool {
        let key = (tenant.to_owned(), id.to_owned());
        let found = self.entries().get(&key).cloned().unwrap_or_default();
        for stopped in &found {
            stopped.send_replace(true);
        }
        !found.is_empty()
    }

    /// A panic elsewhere leaves the table as good as it was.
    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Whether it was ended.
    pub fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Waits until it is ended.
    pub fn stopped(&self) -> impl Future<Output = ()> + 'static {
        let mut changes = self.stopped.subscribe();
        async move {
            // The sender lives as long as its ticket; when that is gone, nobody waits any more.
            let _ = changes.wait_for(|stopped| *stopped).await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut entries = self.all.entries();
        if let Some(tickets) = entries.get_mut(&self.key) {
            tickets.retain(|other| !Arc::ptr_eq(other, &self.stopped));
            if tickets.is_empty() {
                entries.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_can_be_ended_while_it_runs_by_its_own_tenant() {
        let all = Stoppable::default();
        let (first, second) = (all.register("a", "id"), all.register("a", "id"));
        let other = all.register("b", "id");
        assert!(!all.stop("a", "other"));
        assert!(all.stop("a", "id"));
        assert!(first.is_stopped() && second.is_stopped() && !other.is_stopped());
        drop((first, second));
        assert!(!all.stop("a", "id"));
        drop(other);
        assert!(all.entries().is_empty());
    }
}
