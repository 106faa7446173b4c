//! A fork-join pool: the caller and its workers claim the tasks of one job (see `shares`). Between jobs a worker spins for some
//! microseconds and then sleeps. The caller waits only for workers that have joined the job; one that keeps it waiting is left
//! out for a while (see `attendance`). Nesting and priorities are not here.

mod attendance;
mod shares;

use attendance::Attendance;
use shares::Shares;
use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long an idle thread looks for news before it sleeps. Longer than the gap between two operators of a step.
const SPIN: Duration = Duration::from_micros(40);

/// How long the caller waits for others, once its own tasks are done, before it calls them late; longer if its own tasks took longer.
const PATIENCE: Duration = Duration::from_micros(400);

/// `state` holds the number of the job, whether it may be joined, and how many workers are in it.
const OPEN: u64 = 1 << 31;
const WORKERS: u64 = OPEN - 1;
const JOB: u32 = 32;

/// Called with the number of the thread (the caller's is 0) and some of the tasks.
type Task<'a> = dyn Fn(usize, Range<usize>) + Sync + 'a;

/// Threads that run the tasks of one job at a time.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// From where attendance counts time.
    start: Instant,
}

/// The caller's view of a worker.
struct Worker {
    handle: JoinHandle<()>,
    attendance: Attendance,
    /// It kept the present job waiting.
    late: bool,
}

struct Shared {
    state: AtomicU64,
    shares: Shares,
    job: UnsafeCell<Option<*const Task<'static>>>,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// One per worker that was asked for; some may have no worker.
    seats: Vec<Seat>,
    /// Whether the caller sleeps, or is about to, on `done`.
    sleeping_caller: AtomicBool,
    bed: Mutex<()>,
    done: Condvar,
}

/// What a worker and the caller tell each other, in a cache line of its own.
#[repr(align(64))]
struct Seat {
    invited: AtomicBool,
    /// The worker sleeps, or is about to, until it is unparked.
    asleep: AtomicBool,
    /// The worker is in the job.
    inside: AtomicBool,
}

// SAFETY: `job` is written only by the caller while the job is closed and no worker is in it, and read only by workers that
// joined it through `state`; the two are ordered by the acquire and release operations on `state`. The pointer in it leads to a
// `Sync` closure that outlives the job, since `Pool::run` returns only after the last worker has left. All else is atomic or
// locked.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to one thread.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool that runs jobs on `threads` threads, the calling one included; at least one.
    pub fn new(threads: usize) -> Self {
        let seat = |_| Seat {
            invited: AtomicBool::new(true),
            asleep: AtomicBool::new(false),
            inside: AtomicBool::new(false),
        };
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            shares: Shares::new(threads.max(1)),
            job: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
            seats: (1..threads).map(seat).collect(),
            sleeping_caller: AtomicBool::new(false),
            bed: Mutex::new(()),
            done: Condvar::new(),
        });
        // A worker that the system refuses to start is no fault: the others do its share.
        let workers = (1..threads)
            .map_while(|thread| {
                let shared = shared.clone();
                let builder = thread::Builder::new().name(format!("kernel-{thread}"));
                let handle = builder.spawn(move || shared.work(thread)).ok()?;
                Some(Worker {
                    handle,
                    attendance: Attendance::new(),
                    late: false,
                })
            })
            .collect();
        Self {
            shared,
            workers,
            start: Instant::now(),
        }
    }

    /// Threads that take part in a job, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0) .. task(tasks - 1)`, in any order and on any thread, and returns when all are done.
    ///
    /// # Panics
    /// With the payload of a task that panicked, after every other thread has left the job.
    pub fn run(&mut self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.run_ranges(tasks, &|_, range| range.for_each(task));
    }

    /// Like `run`, with `task(thread, range)` for ranges that together cover `0 .. tasks`: threads are numbered from 0, and a thread
    /// runs one range at a time.
    ///
    /// # Panics
    /// As `run` does.
    pub fn run_ranges(&mut self, tasks: usize, task: &Task<'_>) {
        if tasks <= 1 || !self.invite() {
            task(0, 0..tasks);
            return;
        }
        let start = Instant::now();
        self.shared.open(tasks, task);
        self.wake();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.shared.claim_tasks(task, 0);
        }));
        if outcome.is_err() {
            self.shared.shares.clear();
        }
        self.close(start);
        let panic = lock(&self.shared.panic).take().or(outcome.err());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Tells the workers whether they shall join the next job; false when none shall.
    fn invite(&mut self) -> bool {
        if self.workers.iter().all(|w| w.attendance.is_trusted()) {
            return !self.workers.is_empty();
        }
        let (now, mut any) = (self.start.elapsed(), false);
        for (worker, seat) in self.workers.iter_mut().zip(&self.shared.seats) {
            let invited = worker.attendance.invited(now);
            seat.invited.store(invited, Ordering::SeqCst);
            any |= invited;
        }
        any
    }

    /// Wakes those who sleep and are invited.
    fn wake(&self) {
        for (worker, seat) in self.workers.iter().zip(&self.shared.seats) {
            if seat.asleep.load(Ordering::SeqCst) && seat.invited.load(Ordering::SeqCst) {
                worker.handle.thread().unpark();
            }
        }
    }

    /// Lets no more workers in and waits for those inside. The job began at `start`.
    fn close(&mut self, start: Instant) {
        self.shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        if spin_briefly(|| self.shared.is_empty()) {
            return;
        }
        let waiting_since = Instant::now();
        let patience = PATIENCE.max(waiting_since - start);
        if self.shared.await_empty(Some(patience)) {
            return;
        }
        for (worker, seat) in self.workers.iter_mut().zip(&self.shared.seats) {
            worker.late = seat.inside.load(Ordering::SeqCst);
        }
        self.shared.await_empty(None);
        let now = self.start.elapsed();
        for worker in &mut self.workers {
            if std::mem::take(&mut worker.late) {
                worker.attendance.was_late(now, waiting_since.elapsed());
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.handle.thread().unpark();
            // A worker catches the panics of its tasks, so it ends by itself; nothing is left to report.
            let _ = worker.handle.join();
        }
    }
}

impl Shared {
    fn open(&self, tasks: usize, task: &Task<'_>) {
        // SAFETY: only the lifetime is erased. Workers use the pointer while they are in the job, and `close`, which `run` always
        // reaches, returns after the last of them has left.
        let task = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: the job is closed and empty (`close` of the one before made sure), and `run` holds the pool exclusively.
        unsafe { *self.job.get() = Some(task) };
        self.shares.share_out(tasks);
        let job = (self.state.load(Ordering::Relaxed) >> JOB).wrapping_add(1) & u64::from(u32::MAX);
        self.state.store(job << JOB | OPEN, Ordering::SeqCst);
    }

    /// Whether no worker is in the job.
    fn is_empty(&self) -> bool {
        self.state.load(Ordering::SeqCst) & WORKERS == 0
    }

    /// Waits until the closed job is empty, at most for `patience`; whether it is empty.
    fn await_empty(&self, patience: Option<Duration>) -> bool {
        if spin_until(|| self.is_empty(), spin_loop) {
            return true;
        }
        let mut bed = lock(&self.bed);
        self.sleeping_caller.store(true, Ordering::SeqCst);
        if let Some(patience) = patience {
            let waits = |_: &mut ()| !self.is_empty();
            let waited = self.done.wait_timeout_while(bed, patience, waits);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        } else {
            while !self.is_empty() {
                bed = self.done.wait(bed).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.sleeping_caller.store(false, Ordering::SeqCst);
        self.is_empty()
    }

    fn claim_tasks(&self, task: &Task<'_>, thread: usize) {
        while let Some(range) = self.shares.claim(thread) {
            task(thread, range);
        }
    }

    /// The life of a worker.
    fn work(&self, thread: usize) {
        let mut seen = 0;
        while let Some(job) = self.await_job_after(seen, &self.seats[thread - 1]) {
            seen = job;
            self.join(job, thread);
        }
    }

    /// The number of an open job other than `seen` to which the worker is invited; `None` when the pool ends.
    fn await_job_after(&self, seen: u64, seat: &Seat) -> Option<u64> {
        let stop = || self.stop.load(Ordering::SeqCst);
        let news = || {
            let state = self.state.load(Ordering::SeqCst);
            state & OPEN != 0 && state >> JOB != seen && seat.invited.load(Ordering::SeqCst)
        };
        // Where the caller has to share this very core, it goes on only when the worker steps aside.
        if !spin_until(|| news() || stop(), thread::yield_now) {
            seat.asleep.store(true, Ordering::SeqCst);
            while !news() && !stop() {
                thread::park();
            }
            seat.asleep.store(false, Ordering::SeqCst);
        }
        (!stop()).then(|| self.state.load(Ordering::SeqCst) >> JOB)
    }

    /// Takes part in job `number` if it is still open.
    fn join(&self, number: u64, thread: usize) {
        let joined = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| {
                (state & OPEN != 0 && state >> JOB == number).then_some(state + 1)
            });
        if joined.is_err() {
            return;
        }
        let seat = &self.seats[thread - 1];
        seat.inside.store(true, Ordering::SeqCst);
        // SAFETY: the worker is counted in `state`, so the caller neither replaces the job nor returns from `run`.
        let job = unsafe { *self.job.get() };
        if let Some(task) = job {
            // SAFETY: as above: the closure lives until `run` returns.
            let task = unsafe { &*task };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.claim_tasks(task, thread))) {
                self.shares.clear();
                lock(&self.panic).get_or_insert(panic);
            }
        }
        seat.inside.store(false, Ordering::SeqCst);
        self.state.fetch_sub(1, Ordering::SeqCst);
        if self.sleeping_caller.load(Ordering::SeqCst) {
            let _bed = lock(&self.bed);
            self.done.notify_one();
        }
    }
}

/// Spins until `condition` holds; false when `SPIN` has passed. Does `between` now and then.
fn spin_until(condition: impl Fn() -> bool, between: impl Fn()) -> bool {
    let mut since = None;
    loop {
        if spin_briefly(&condition) {
            return true;
        }
        between();
        if since.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return false;
        }
    }
}

/// Looks some dozen times whether `condition` holds.
fn spin_briefly(condition: impl Fn() -> bool) -> bool {
    for _ in 0..64 {
        if condition() {
            return true;
        }
        spin_loop();
    }
    false
}

/// A panicking task never holds one of these locks, so a poisoned one is in order.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn counts(pool: &mut Pool, tasks: usize) -> Vec<usize> {
        let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(tasks, &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 5] {
            let mut pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for round in 0..300 {
                let tasks = round % 23;
                assert_eq!(counts(&mut pool, tasks), vec![1; tasks]);
            }
        }
    }

    #[test]
    fn sleeping_workers_wake_for_the_next_job() {
        let mut pool = Pool::new(3);
        for _ in 0..5 {
            std::thread::sleep(SPIN * 20);
            assert_eq!(counts(&mut pool, 8), vec![1; 8]);
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_goes_on() {
        let mut pool = Pool::new(3);
        for bad in 0..16 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(16, &|i| {
                    std::thread::sleep(Duration::from_micros(20));
                    assert_ne!(i, bad, "task {bad} fails");
                });
            }));
            assert!(outcome.is_err());
            assert_eq!(counts(&mut pool, 9), vec![1; 9]);
        }
    }

    #[test]
    fn a_slow_worker_is_waited_for() {
        let mut pool = Pool::new(2);
        let finished = AtomicUsize::new(0);
        pool.run(2, &|_| {
            std::thread::sleep(Duration::from_millis(3));
            finished.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(finished.load(Ordering::SeqCst), 2);
    }
}
