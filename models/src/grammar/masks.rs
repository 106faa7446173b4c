//! The threads that make masks, beside the steps of the devices: few, so that they leave the cores to the kernels, and shared by all
//! sequences. A job is short: the compiler's limits bound the work for one mask.

use super::STACK_BYTES;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Cores per thread.
const CORES_PER_THREAD: usize = 8;
/// Most threads.
const THREADS_MAX: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// A handle on the threads; they end when the last one is gone.
#[derive(Clone)]
pub(super) struct MaskThreads {
    jobs: Sender<Job>,
}

impl MaskThreads {
    /// Starts them.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start() -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        for _ in 0..(cores / CORES_PER_THREAD).clamp(1, THREADS_MAX) {
            let queue = queue.clone();
            std::thread::Builder::new()
                .name("masks".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || work_off(&queue))?;
        }
        Ok(MaskThreads { jobs })
    }

    /// Has a job done soon. The queue is as long as there are sequences: each has one job at most.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The threads hold the other end for as long as this handle lives.
        let _ = self.jobs.send(Box::new(job));
    }
}

fn work_off(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // Who waits for the job's result sees that it never comes.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}
