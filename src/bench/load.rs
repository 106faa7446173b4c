//! Sends the requests of a run: in a closed loop, each of a number of clients sending its next request when its last has ended, or in
//! an open loop, at times that were drawn beforehand.

use super::arrivals::Rate;
use super::exchange::{Client, Ready};
use super::record::Record;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What decides when requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many requests at any time.
    Closed {
        /// At once.
        concurrency: usize,
    },
    /// By themselves.
    Open {
        /// How often.
        rate: Rate,
        /// At most so many at once: the others wait, and their wait counts.
        limit: Option<usize>,
        /// Of the times.
        seed: u64,
    },
}

/// What a run gave.
#[derive(Debug, Default)]
pub struct Run {
    /// Requests that ended, in the order of their ends.
    pub records: Vec<Record>,
    /// From the first sending to the last end.
    pub wall: Duration,
    /// Whether it was stopped before all requests had ended.
    pub stopped: bool,
}

/// Sends all requests and waits for the answers, or until `stop` is done: what has ended by then is the result.
pub async fn run(
    client: &Arc<Client>,
    requests: Arc<[Ready]>,
    pace: Pace,
    stop: impl Future<Output = ()>,
) -> Run {
    let load = Arc::new(Load {
        client: client.clone(),
        requests,
        began: Instant::now(),
        records: Mutex::default(),
    });
    // Those still running are given up when this is dropped.
    let mut tasks = match pace {
        Pace::Closed { concurrency } => closed(&load, concurrency),
        Pace::Open { rate, limit, seed } => {
            let due = rate.schedule(load.requests.len(), &mut StdRng::seed_from_u64(seed));
            open(&load, &due, limit)
        }
    };
    tokio::pin!(stop);
    let stopped = loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended.unwrap_or_else(|error| resume_unwind(error.into_panic())),
                None => break false,
            },
            () = &mut stop => break true,
        }
    };
    let wall = load.began.elapsed();
    let records = std::mem::take(&mut *load.records());
    Run {
        records,
        wall,
        stopped,
    }
}

/// What all tasks of a run share.
struct Load {
    client: Arc<Client>,
    requests: Arc<[Ready]>,
    began: Instant,
    /// Of requests that have ended.
    records: Mutex<Vec<Record>>,
}

impl Load {
    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request, due at `due`, and keeps its record.
    async fn send(&self, request: &Ready, due: Instant) {
        let record = self.client.exchange(request, self.began, due).await;
        self.records().push(record);
    }
}

fn closed(load: &Arc<Load>, concurrency: usize) -> JoinSet<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let client = |_| {
        let (load, next) = (load.clone(), next.clone());
        async move {
            while let Some(request) = load.requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                load.send(request, Instant::now()).await;
            }
        }
    };
    (0..concurrency.min(load.requests.len()))
        .map(client)
        .collect()
}

fn open(load: &Arc<Load>, due: &[Duration], limit: Option<usize>) -> JoinSet<()> {
    let places = Arc::new(Semaphore::new(limit.unwrap_or(Semaphore::MAX_PERMITS)));
    let request = |(index, due): (usize, &Duration)| {
        let (load, places) = (load.clone(), places.clone());
        let due = load.began + *due;
        async move {
            tokio::time::sleep_until(due.into()).await;
            // The semaphore is never closed, so there is always a place in the end.
            let _place = places.acquire().await;
            load.send(&load.requests[index], due).await;
        }
    };
    due.iter().enumerate().map(request).collect()
}
