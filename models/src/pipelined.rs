//! Running plans on a device that may have begun them: see `ahead`.

use crate::ahead::{Underway, behind, is_decode};
use crate::runner::{ModelRunner, fault, operator_fault};
use ropeteam_engine::executor::DeviceFault;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::plan::{Chunk, ChunkResult, StepOutput, StepPlan};

impl ModelRunner {
    /// Runs a plan on a device that may have begun it, and lets it begin at most `most` further ones.
    pub(crate) fn run_ahead(
        &mut self,
        plan: &StepPlan,
        output: &mut StepOutput,
        most: usize,
    ) -> Result<(), DeviceFault> {
        let size = self.limits.block_size;
        let rows = match self.underway.front() {
            Some(step) => step.rows_for(plan, &self.best, size),
            None => vec![None; plan.chunks.len()],
        };
        if rows.iter().all(Option::is_none) {
            self.underway.clear();
            if !plan.chunks.iter().all(is_decode) {
                return self.run(plan, output);
            }
            self.begin(plan.clone(), false)?;
            let rows: Vec<_> = (0..plan.chunks.len()).map(Some).collect();
            self.begin_further(most)?;
            return self.collect(plan, &rows, output);
        }
        if rows.iter().any(Option::is_none) || rows.len() < self.underway[0].plan.chunks.len() {
            // What is behind it has rows that nobody wants, or lacks some.
            self.underway.truncate(1);
        } else {
            self.begin_further(most)?;
        }
        self.collect(plan, &rows, output)
    }

    /// Begins steps behind the last one under way, until there are `most` beside the one that is to be collected.
    fn begin_further(&mut self, most: usize) -> Result<(), DeviceFault> {
        while self.underway.len() <= most {
            let last = self.underway.back().map(|step| &step.plan);
            let (size, len) = (self.limits.block_size, self.limits.model_len);
            let Some(next) = last.and_then(|plan| behind(plan, size, len)) else {
                break;
            };
            self.begin(next, true)?;
        }
        Ok(())
    }

    fn begin(&mut self, plan: StepPlan, found: bool) -> Result<(), DeviceFault> {
        self.step
            .fill(&plan, &self.limits)
            .map_err(operator_fault)?;
        let rows = plan.chunks.len();
        let logits = self.enqueue(found.then_some(rows))?;
        let answer = self.device.find_best(logits, rows).map_err(fault)?;
        self.underway.push_back(Underway { plan, answer });
        Ok(())
    }

    /// Collects the first step under way: row `rows[i]` of it is the result of the plan's chunk i, `None` is to be computed now.
    fn collect(
        &mut self,
        plan: &StepPlan,
        rows: &[Option<usize>],
        output: &mut StepOutput,
    ) -> Result<(), DeviceFault> {
        let Some(step) = self.underway.pop_front() else {
            return self.run(plan, output);
        };
        let mut found = Vec::with_capacity(rows.len());
        let settled = self
            .device
            .collect_best(step.answer, &self.mask, &mut found);
        if !settled.map_err(fault)? {
            self.underway.clear();
            return self.run(plan, output);
        }
        let others = plan.chunks.iter().zip(rows);
        let others = others.filter(|(_, row)| row.is_none());
        let others: Vec<Chunk> = others.map(|(chunk, _)| chunk.clone()).collect();
        if others.is_empty() {
            self.best.clone_from(&found);
        } else {
            self.run(&StepPlan { chunks: others }, output)?;
        }
        let mut computed = std::mem::take(&mut output.results).into_iter();
        for row in rows {
            let result = match row {
                Some(row) => {
                    found[*row].map_or(ChunkResult::Nothing, |id| ChunkResult::Best(TokenId(id)))
                }
                None => computed.next().unwrap_or(ChunkResult::Nothing),
            };
            output.results.push(result);
        }
        Ok(())
    }
}
