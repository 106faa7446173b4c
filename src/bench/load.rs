//! Sends the requests of a run: in a closed loop, each of a number of clients sending its next request when its last has ended, or in
//! an open loop, at times that were drawn beforehand.

use super::arrivals::Rate;
use super::exchange::{Client, Ready};
use super::record::Record;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    let began = Instant::now();
    let mut tasks = match pace {
        Pace::Closed { concurrency } => closed(client, &requests, concurrency, began),
        Pace::Open { rate, limit, seed } => {
            let due = rate.schedule(requests.len(), &mut StdRng::seed_from_u64(seed));
            open(client, &requests, (&due, limit), began)
        }
    };
    let mut records = Vec::with_capacity(requests.len());
    tokio::pin!(stop);
    let stopped = loop {
        tokio::select! {
            ended = tasks.recv() => match ended {
                Some(record) => records.push(record),
                None => break false,
            },
            () = &mut stop => break true,
        }
    };
    Run {
        records,
        wall: began.elapsed(),
        stopped,
    }
}

/// Requests on their way; those still running are given up when this is dropped.
struct Tasks {
    records: tokio::sync::mpsc::UnboundedReceiver<Record>,
    running: JoinSet<()>,
}

impl Tasks {
    async fn recv(&mut self) -> Option<Record> {
        let record = self.records.recv().await;
        // Finished tasks are let go as records come, or the set would grow with the run.
        while self.running.try_join_next().is_some() {}
        record
    }
}

fn closed(
    client: &Arc<Client>,
    requests: &Arc<[Ready]>,
    concurrency: usize,
    began: Instant,
) -> Tasks {
    let (sender, records) = tokio::sync::mpsc::unbounded_channel();
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = JoinSet::new();
    for _ in 0..concurrency.min(requests.len()) {
        let (client, requests) = (client.clone(), requests.clone());
        let (next, sender) = (next.clone(), sender.clone());
        running.spawn(async move {
            while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let record = client.exchange(request, began, Instant::now()).await;
                // Nobody receives any more when the run was stopped.
                let _ = sender.send(record);
            }
        });
    }
    Tasks { records, running }
}

fn open(
    client: &Arc<Client>,
    requests: &Arc<[Ready]>,
    (due, limit): (&[Duration], Option<usize>),
    began: Instant,
) -> Tasks {
    let (sender, records) = tokio::sync::mpsc::unbounded_channel();
    let places = Arc::new(Semaphore::new(limit.unwrap_or(Semaphore::MAX_PERMITS)));
    let mut running = JoinSet::new();
    for (index, due) in due.iter().enumerate() {
        let (client, requests) = (client.clone(), requests.clone());
        let (places, sender) = (places.clone(), sender.clone());
        let due = began + *due;
        running.spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            // The semaphore is never closed, so there is always a place in the end.
            let _place = places.acquire().await;
            let record = client.exchange(&requests[index], began, due).await;
            let _ = sender.send(record);
        });
    }
    Tasks { records, running }
}
