//! What an operator runs on: an instruction set and threads, and how rows are shared out among them.

use crate::disjoint::Disjoint;
use crate::{Isa, Pool};

/// Elements of a task.
const ELEMENTS_PER_TASK: usize = 8 * 1024;
/// With fewer tasks, sharing them out costs more than it brings.
const WORTH_SHARING: usize = 4;

/// The instruction set and the threads that operators use.
pub struct Machine {
    pub(crate) isa: Isa,
    pub(crate) pool: Pool,
}

impl Machine {
    /// `threads` threads, the calling one included.
    pub fn new(isa: Isa, threads: usize) -> Self {
        Self {
            isa,
            pool: Pool::new(threads),
        }
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads in use.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Does tasks `0 .. tasks` on the threads, each once, in any order; returns when all are done. For work between two operators.
    ///
    /// # Panics
    /// When a task did.
    pub fn run(&mut self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.pool.run(tasks, task);
    }

    /// Calls `work(first_row, rows)` for slices of whole rows of `out` that together cover it.
    pub(crate) fn for_rows<T: Send>(
        &mut self,
        out: &mut [T],
        cols: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        self.for_costly_rows(out, cols, cols, work);
    }

    /// `for_rows` where a row takes as long as `cost` elements of a simple operator.
    pub(crate) fn for_costly_rows<T: Send>(
        &mut self,
        out: &mut [T],
        cols: usize,
        cost: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let rows = out.len().checked_div(cols).unwrap_or(0);
        let tasks = even_tasks(rows.saturating_mul(cost), self.threads());
        let rows_per_task = rows.div_ceil(tasks).max(1);
        let out = Disjoint::new(out);
        self.pool.run(rows.div_ceil(rows_per_task), &|task| {
            let first = task * rows_per_task;
            let count = rows_per_task.min(rows - first);
            // SAFETY: tasks cover different rows.
            work(first, unsafe { out.part(first * cols, count * cols) });
        });
    }
}

/// How many tasks are made of so many elements: one, or as many for each thread.
fn even_tasks(elements: usize, threads: usize) -> usize {
    let tasks = elements / ELEMENTS_PER_TASK;
    if tasks < WORTH_SHARING {
        return 1;
    }
    tasks.next_multiple_of(threads.min(tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_work_stays_on_one_thread_and_much_is_shared_out_evenly() {
        assert_eq!(even_tasks(0, 2), 1);
        assert_eq!(even_tasks(4 * ELEMENTS_PER_TASK - 1, 2), 1);
        assert_eq!(even_tasks(4 * ELEMENTS_PER_TASK, 2), 4);
        assert_eq!(even_tasks(5 * ELEMENTS_PER_TASK, 2), 6);
        assert_eq!(even_tasks(5 * ELEMENTS_PER_TASK, 64), 5);
        assert_eq!(even_tasks(130 * ELEMENTS_PER_TASK, 64), 192);
    }

    #[test]
    fn every_row_is_in_one_slice() {
        for threads in [1, 3] {
            for rows in [0, 1, 7, 1000] {
                let mut out = vec![0; rows * 100];
                let mut machine = Machine::new(Isa::best(), threads);
                machine.for_costly_rows(&mut out, 100, 1000, |first, rows| {
                    for (i, row) in rows.chunks_exact_mut(100).enumerate() {
                        row.iter_mut().for_each(|x| *x += first + i + 1);
                    }
                });
                let expected: Vec<_> = (0..rows * 100).map(|i| i / 100 + 1).collect();
                assert_eq!(out, expected, "{rows} rows on {threads} threads");
            }
        }
    }
}
