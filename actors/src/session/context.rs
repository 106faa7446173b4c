//! What the sessions of one engine share.

use crate::bus::Bus;
use crate::clock::Clock;
use crate::config::{EngineConfig, LiveConfig};
use crate::requests::Requests;
use crate::scheduler::Scheduler;
use crate::state::EngineState;
use actix::Addr;
use ropeteam_engine::ids::{SeqId, TokenId};
use ropeteam_engine::text::TextCodec;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{Semaphore, watch};

/// Shared by the engine's handle and all sessions.
pub(crate) struct SessionContext {
    pub config: EngineConfig,
    /// The part of it that changes, as it holds now. Locked for a copy only.
    pub live: RwLock<LiveConfig>,
    pub codec: Arc<dyn TextCodec>,
    pub eos_ids: Vec<TokenId>,
    pub clock: Clock,
    pub bus: Bus,
    pub scheduler: Addr<Scheduler>,
    pub state: watch::Receiver<EngineState>,
    /// One permit per prompt that may be tokenised at the same time.
    pub tokenising: Arc<Semaphore>,
    /// One permit: whose it is may be on a device though devices died under it again and again.
    pub suspects: Arc<Semaphore>,
    pub sessions: Arc<AtomicUsize>,
    pub requests: Requests,
    pub next_seq: AtomicU64,
}

impl SessionContext {
    /// The limits that hold now.
    pub fn live(&self) -> LiveConfig {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.clone()
    }

    /// Other limits from now on.
    pub fn set_live(&self, live: LiveConfig) {
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = live;
    }

    /// Ids for so many sequences; the first of them.
    pub fn take_seqs(&self, count: u32) -> SeqId {
        SeqId(self.next_seq.fetch_add(u64::from(count), Ordering::Relaxed))
    }

    /// A place for one more session; `None` when there are too many.
    pub fn take_place(&self) -> Option<Place> {
        let place = Place(self.sessions.clone());
        let before = self.sessions.fetch_add(1, Ordering::Relaxed);
        (before < self.live().max_requests).then_some(place)
    }
}

/// A session's place among the bounded number of sessions; free when dropped.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
