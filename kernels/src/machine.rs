//! What an operator runs on: an instruction set and threads, and how rows are shared out among them.

use crate::disjoint::Disjoint;
use crate::{Isa, Pool};

/// Elements below which waking another thread costs more than it brings.
const ELEMENTS_PER_TASK: usize = 16 * 1024;

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
        let rows = out.len().checked_div(cols).unwrap_or(0);
        let rows_per_task = (ELEMENTS_PER_TASK / cols.max(1)).max(1);
        let out = Disjoint::new(out);
        self.pool.run(rows.div_ceil(rows_per_task), &|task| {
            let first = task * rows_per_task;
            let count = rows_per_task.min(rows - first);
            // SAFETY: tasks cover different rows.
            work(first, unsafe { out.part(first * cols, count * cols) });
        });
    }
}
