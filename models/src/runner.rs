//! Runs step plans of a real model on a device: the `StepExecutor` behind a device actor.
//! Not here: what goes into a step (engine) and the forward pass itself (`decoder`).

use crate::ahead::Underway;
use crate::checkpoint::Checkpoint;
use crate::decoder::{Decoder, StepTokens};
use crate::error::LoadError;
use crate::families;
use crate::spec::DecoderSpec;
use crate::step_rows::{StepLimits, StepRows, highest_of};
use ropeteam_device::{Act, ColumnMask, Damage, Device, DeviceError, Ids};
use ropeteam_engine::executor::{Capacity, DeviceFault, FaultKind, ForkJoin, StepExecutor};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::plan::{ChunkResult, HostCost, StepOutput, StepPlan, Want};
use std::collections::VecDeque;
use std::time::Instant;

/// What a runner shall hold. Sizes follow from a memory budget: see `Device::kv_block_bytes` and `DecoderSpec::weight_bytes`.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// Blocks in the KV pool.
    pub kv_blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Longest sequence; at most `DecoderSpec::max_positions`.
    pub max_model_len: u32,
    /// Most tokens in one step.
    pub max_step_tokens: u32,
    /// Most logits rows in one step.
    pub max_logits_rows: u32,
    /// Columns of the logits that the tokenizer has a token for.
    pub mask: ColumnMask,
}

/// A model on a device, with its KV pool.
pub struct ModelRunner {
    pub(crate) device: Box<dyn Device>,
    decoder: Decoder,
    pub(crate) limits: StepLimits,
    vocab: usize,
    pub(crate) mask: ColumnMask,
    pub(crate) step: StepRows,
    /// Best ids of the last step that brought such.
    pub(crate) best: Vec<Option<u32>>,
    /// Steps that were enqueued and not collected.
    pub(crate) underway: VecDeque<Underway>,
}

impl ModelRunner {
    /// Loads the weights and allocates everything that steps will need. Afterwards the checkpoint may be dropped.
    ///
    /// # Errors
    /// Weights that are missing or damaged, a device without enough memory, limits that contradict the model.
    pub fn load(
        checkpoint: &Checkpoint,
        mut device: Box<dyn Device>,
        options: RunnerOptions,
    ) -> Result<Self, LoadError> {
        let spec = families::spec(checkpoint.config())?;
        options.check(&spec)?;
        check_windows(&spec, &*device, options.max_model_len)?;
        let (vocab, mask) = (spec.vocab, fitting(options.mask, spec.vocab));
        let kv_shape = spec.kv_shape(options.kv_blocks as usize, options.block_size as usize);
        let sizes = (
            options.max_step_tokens as usize,
            options.max_logits_rows as usize,
        );
        let decoder = Decoder::load(spec, checkpoint, &mut *device, sizes)?;
        device.alloc_kv(kv_shape)?;
        let limits = StepLimits {
            blocks: options.kv_blocks,
            block_size: options.block_size,
            model_len: options.max_model_len,
            step_tokens: options.max_step_tokens,
            logits_rows: options.max_logits_rows,
            highest: device.highest_max() as u32,
        };
        let (step, best) = (StepRows::default(), Vec::new());
        Ok(Self {
            device,
            decoder,
            limits,
            vocab,
            mask,
            step,
            best,
            underway: VecDeque::new(),
        })
    }

    /// Computes a plan and reads what it wants.
    pub(crate) fn run(
        &mut self,
        plan: &StepPlan,
        output: &mut StepOutput,
    ) -> Result<(), DeviceFault> {
        self.step.fill(plan, &self.limits).map_err(operator_fault)?;
        let logits = self.enqueue(None)?;
        self.best.clear();
        let best = self.step.best;
        if best > 0 {
            self.device
                .read_argmax(logits, 0, best, &self.mask, &mut self.best)
                .map_err(fault)?;
        }
        let candidates = self.read_candidates(logits, output)?;
        self.read_logits(logits, output)?;
        let hidden = self.read_hidden(plan, output)?;
        self.fill_results(plan, (candidates, hidden), output);
        Ok(())
    }

    /// Lets the device compute the rows in `step`, whose ids it found itself where `found` says so.
    pub(crate) fn enqueue(&mut self, found: Option<usize>) -> Result<Act, DeviceFault> {
        let StepRows {
            ids,
            rows,
            wanted,
            hidden,
            ..
        } = &self.step;
        let ids = found.map_or(Ids::Given(ids), Ids::Found);
        let tokens = StepTokens {
            ids,
            rows,
            wanted,
            hidden: *hidden,
        };
        let single = rows.segments.len() == rows.positions.len();
        let all = wanted.iter().copied().eq(0..ids.count() as u32);
        let device = &mut *self.device;
        loop {
            let known = device.begin_step(&ids, rows, single && all && !*hidden);
            if !known.map_err(fault)? {
                self.decoder.forward(device, &tokens).map_err(fault)?;
            }
            if device.end_step().map_err(fault)? {
                return Ok(self.decoder.logits());
            }
        }
    }

    /// Reads the best columns of the rows behind the first `best` ones into `output`; the results of their chunks, in order.
    fn read_candidates(
        &mut self,
        logits: Act,
        output: &mut StepOutput,
    ) -> Result<Vec<ChunkResult>, DeviceFault> {
        let (first, counts) = (self.step.best, &self.step.highest);
        if counts.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = Vec::with_capacity(counts.len());
        self.device
            .read_highest(logits, first, counts, &self.mask, &mut rows)
            .map_err(fault)?;
        let mut result = |row: Vec<(u32, f32)>| {
            let (first, len) = (output.candidates.len(), row.len());
            let columns = row.into_iter().map(|(id, logit)| (TokenId(id), logit));
            output.candidates.extend(columns);
            ChunkResult::Candidates { first, len }
        };
        Ok(rows.into_iter().map(&mut result).collect())
    }

    /// Reads the logits rows behind those into `output`, masked.
    fn read_logits(&mut self, logits: Act, output: &mut StepOutput) -> Result<(), DeviceFault> {
        let first = self.step.best + self.step.highest.len();
        let rows = self.step.wanted.len() - first;
        if rows == 0 {
            return Ok(());
        }
        self.device
            .read_rows(logits, first, rows, &mut output.logits)
            .map_err(fault)?;
        for row in output.logits.chunks_exact_mut(self.vocab) {
            mask_row(row, &self.mask);
        }
        Ok(())
    }

    /// Reads the hidden rows of the chunks that want them into `output`; the results of these chunks, in order.
    fn read_hidden(
        &mut self,
        plan: &StepPlan,
        output: &mut StepOutput,
    ) -> Result<Vec<ChunkResult>, DeviceFault> {
        let mut results = Vec::new();
        let segments = self.step.rows.segments.iter().zip(&plan.chunks);
        for (segment, _) in segments.filter(|(_, chunk)| chunk.want == Want::Hidden) {
            let first = output.hidden.len();
            let hidden = self.decoder.hidden();
            self.device
                .read_rows(hidden, segment.first_row, segment.rows, &mut output.hidden)
                .map_err(fault)?;
            let len = output.hidden.len() - first;
            results.push(ChunkResult::Hidden { first, len });
        }
        Ok(results)
    }

    fn fill_results(
        &self,
        plan: &StepPlan,
        (candidates, hidden): (Vec<ChunkResult>, Vec<ChunkResult>),
        output: &mut StepOutput,
    ) {
        let (mut candidates, mut hidden) = (candidates.into_iter(), hidden.into_iter());
        let mut best = self.best.iter();
        let mut first = 0;
        for chunk in &plan.chunks {
            let count = match chunk.want {
                Want::Nothing => {
                    output.results.push(ChunkResult::Nothing);
                    continue;
                }
                Want::Argmax => {
                    let id = best
                        .next()
                        .expect("one id was read for each chunk that wants it");
                    let found = id.map(|id| ChunkResult::Best(TokenId(id)));
                    output.results.push(found.unwrap_or(ChunkResult::Nothing));
                    continue;
                }
                Want::AllArgmax => {
                    let (first, count) = (output.best.len(), chunk.tokens.len());
                    let ids = best.by_ref().take(count);
                    output.best.extend(ids.map(|id| id.map(TokenId)));
                    output
                        .results
                        .push(ChunkResult::BestOfEach { first, count });
                    continue;
                }
                Want::Hidden => {
                    output
                        .results
                        .push(hidden.next().expect("one for each chunk"));
                    continue;
                }
                Want::BestLogits(_) if highest_of(chunk.want, self.limits.highest).is_some() => {
                    output
                        .results
                        .push(candidates.next().expect("one for each chunk"));
                    continue;
                }
                Want::LastLogits | Want::BestLogits(_) => 1,
                Want::AllLogits => chunk.tokens.len(),
            };
            output.results.push(ChunkResult::Logits { first, count });
            first += count;
        }
    }
}

impl StepExecutor for ModelRunner {
    fn capacity(&self) -> Capacity {
        Capacity {
            blocks: self.limits.blocks,
            block_size: self.limits.block_size,
            max_model_len: self.limits.model_len,
            max_step_tokens: self.limits.step_tokens,
            max_logits_rows: self.limits.logits_rows,
            vocab: self.vocab as u32,
        }
    }

    fn threads(&mut self) -> Option<&mut dyn ForkJoin> {
        Some(self)
    }

    fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) -> Result<(), DeviceFault> {
        output.begin(self.vocab);
        if plan.chunks.is_empty() {
            return Ok(());
        }
        let (began, before) = (Instant::now(), self.device.counters());
        match self.device.steps_ahead() {
            0 => self.run(plan, output)?,
            most => self.run_ahead(plan, output, most)?,
        }
        let after = self.device.counters();
        let busy = began.elapsed().saturating_sub(after.waited - before.waited);
        let launches = (after.launches - before.launches) as u32;
        if launches > 0 {
            let busy_us = u32::try_from(busy.as_micros()).unwrap_or(u32::MAX);
            output.host = HostCost { launches, busy_us };
            tracing::trace!(launches, busy_us, chunks = plan.chunks.len(), "step");
        }
        Ok(())
    }

    fn lookahead(&self) -> u32 {
        self.device.steps_ahead() as u32
    }
}

impl ForkJoin for ModelRunner {
    fn threads(&self) -> usize {
        self.device.host_threads()
    }

    fn run(&mut self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.device.run_on_host(tasks, task);
    }
}

impl RunnerOptions {
    fn check(&self, spec: &DecoderSpec) -> Result<(), LoadError> {
        let positive = [
            ("kv_blocks", self.kv_blocks),
            ("block_size", self.block_size),
            ("max_model_len", self.max_model_len),
            ("max_step_tokens", self.max_step_tokens),
            ("max_logits_rows", self.max_logits_rows),
        ];
        for (option, value) in positive {
            if value == 0 {
                let expected = "but must be at least 1".to_owned();
                return Err(LoadError::Option {
                    option,
                    found: 0,
                    expected,
                });
            }
        }
        let slots = u64::from(self.kv_blocks) * u64::from(self.block_size);
        if slots > u64::from(u32::MAX) {
            let expected = format!("too many in blocks of {}", self.block_size);
            return Err(LoadError::Option {
                option: "kv_blocks",
                found: slots,
                expected,
            });
        }
        if self.max_model_len as usize > spec.max_positions {
            let expected = format!("but the model's positions end at {}", spec.max_positions);
            let found = u64::from(self.max_model_len);
            return Err(LoadError::Option {
                option: "max_model_len",
                found,
                expected,
            });
        }
        Ok(())
    }
}

/// A device without sliding windows computes sequences that stay inside them.
fn check_windows(spec: &DecoderSpec, device: &dyn Device, model_len: u32) -> Result<(), LoadError> {
    let info = device.info();
    let windows = (0..spec.layers()).filter_map(|layer| spec.attention(layer).window);
    match windows.min() {
        Some(window) if !info.attention.windows && window < model_len as usize => {
            Err(LoadError::Option {
                option: "max_model_len",
                found: model_len.into(),
                expected: format!(
                    "but {} has no sliding windows, and the model's are of {window}",
                    info.kind
                ),
            })
        }
        _ => Ok(()),
    }
}

/// The mask without columns that the logits do not have: a tokenizer may know more tokens than the model.
fn fitting(mut mask: ColumnMask, vocab: usize) -> ColumnMask {
    mask.limit = mask.limit.min(vocab);
    mask.holes.retain(|&hole| (hole as usize) < mask.limit);
    mask
}

fn mask_row(row: &mut [f32], mask: &ColumnMask) {
    row[mask.limit..].fill(f32::NEG_INFINITY);
    for &hole in &mask.holes {
        row[hole as usize] = f32::NEG_INFINITY;
    }
}

pub(crate) fn fault(error: DeviceError) -> DeviceFault {
    let kind = match &error {
        DeviceError::Op {
            damage: Damage::Process,
            ..
        } => FaultKind::Driver,
        DeviceError::Op {
            damage: Damage::Device,
            ..
        }
        | DeviceError::Lost(_) => FaultKind::Hardware,
        _ => FaultKind::Operator,
    };
    let detail = error.to_string();
    DeviceFault { kind, detail }
}

pub(crate) fn operator_fault(detail: impl Into<String>) -> DeviceFault {
    DeviceFault {
        kind: FaultKind::Operator,
        detail: detail.into(),
    }
}
