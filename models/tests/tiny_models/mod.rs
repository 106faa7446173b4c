//! Models on the CPU device, driven one sequence at a time, for all test files here.
#![allow(dead_code, reason = "each test file uses its own part")]

use ropeteam_device::{ColumnMask, CpuDevice, CpuOptions, KvPrecision, Precision};
use ropeteam_engine::executor::StepExecutor;
use ropeteam_engine::ids::{BlockId, SeqId, TokenId};
use ropeteam_engine::plan::{Chunk, ChunkResult, StepOutput, StepPlan, Want};
use ropeteam_models::{Checkpoint, LoadError, ModelRunner, RunnerOptions, families};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Folder of a tiny model.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/tiny")
        .join(name)
}

/// `goldens.json` of a model: what transformers computed.
#[derive(Deserialize)]
pub struct Goldens {
    pub prompts: Vec<Golden>,
}

/// One prompt of it.
#[derive(Deserialize)]
pub struct Golden {
    pub ids: Vec<u32>,
    pub argmax_per_position: Vec<u32>,
    pub margin_per_position: Vec<f32>,
    pub nll_per_position: Vec<f32>,
    pub last_logits: Vec<f32>,
    pub greedy_tokens: Vec<u32>,
    pub greedy_margins: Vec<f32>,
}

impl Goldens {
    pub fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("goldens.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

/// How a model is put on the CPU.
#[derive(Clone, Copy)]
pub struct Setup {
    pub precision: Precision,
    pub threads: usize,
    pub block_size: u32,
    pub model_len: u32,
    /// Room for that many sequences of the longest length.
    pub sequences: u32,
    /// Tokens and logits rows in a step.
    pub step_tokens: u32,
}

impl Setup {
    pub fn new(precision: Precision) -> Self {
        Self {
            precision,
            threads: 2,
            block_size: 16,
            model_len: 192,
            sequences: 5,
            step_tokens: 1024,
        }
    }
}

/// Loads the model at `path`.
pub fn load(path: &Path, setup: Setup) -> Result<Model, LoadError> {
    let checkpoint = Checkpoint::open(path)?;
    let spec = families::spec(checkpoint.config())?;
    let device = CpuDevice::new(CpuOptions {
        precision: setup.precision,
        kv: KvPrecision::ByWeights,
        threads: setup.threads,
    });
    let options = RunnerOptions {
        kv_blocks: setup.sequences * setup.model_len.div_ceil(setup.block_size),
        block_size: setup.block_size,
        max_model_len: setup.model_len,
        max_step_tokens: setup.step_tokens,
        max_logits_rows: setup.step_tokens,
        mask: ColumnMask {
            limit: spec.vocab,
            holes: vec![],
        },
    };
    let runner = ModelRunner::load(&checkpoint, Box::new(device), options)?;
    Ok(Model {
        runner,
        setup,
        output: StepOutput::default(),
    })
}

/// A model and the bookkeeping of a step.
pub struct Model {
    pub runner: ModelRunner,
    setup: Setup,
    output: StepOutput,
}

impl Model {
    /// The blocks of the `place`-th sequence, in no natural order.
    pub fn blocks(&self, place: u32) -> Vec<BlockId> {
        let each = self.setup.model_len.div_ceil(self.setup.block_size);
        (0..each)
            .rev()
            .map(|index| BlockId(index * self.setup.sequences + place))
            .collect()
    }

    /// A chunk of the `place`-th sequence.
    pub fn chunk(&self, place: u32, start: usize, ids: &[u32], want: Want) -> Chunk {
        Chunk {
            seq: SeqId(u64::from(place)),
            tokens: ids.iter().map(|&id| TokenId(id)).collect(),
            start: start as u32,
            blocks: self.blocks(place),
            want,
        }
    }

    /// Runs one step.
    pub fn step(&mut self, chunks: Vec<Chunk>) -> &StepOutput {
        self.runner
            .step(&StepPlan { chunks }, &mut self.output)
            .unwrap();
        &self.output
    }

    /// The logits after every position of `ids`, computed in chunks of `chunk` tokens.
    pub fn all_logits(&mut self, ids: &[u32], chunk: usize) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        for start in (0..ids.len()).step_by(chunk) {
            let piece = &ids[start..ids.len().min(start + chunk)];
            let chunk = self.chunk(0, start, piece, Want::AllLogits);
            let output = self.step(vec![chunk]);
            rows.extend((0..piece.len()).map(|row| output.row(row).to_vec()));
        }
        rows
    }

    /// Goes on greedily from `ids` for `count` tokens.
    pub fn greedy(&mut self, ids: &[u32], count: usize) -> Vec<u32> {
        let mut chunk = self.chunk(0, 0, ids, Want::Argmax);
        let mut tokens = Vec::new();
        while tokens.len() < count {
            let ChunkResult::Best(TokenId(id)) = self.step(vec![chunk]).results[0] else {
                panic!("a best id was asked for");
            };
            chunk = self.chunk(0, ids.len() + tokens.len(), &[id], Want::Argmax);
            tokens.push(id);
        }
        tokens
    }
}

/// Column of the highest value, the first of equals.
pub fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().fold(
        0,
        |best, (at, value)| if *value > row[best] { at } else { best },
    );
    best as u32
}

/// `-log softmax(row)[id]`.
pub fn nll(row: &[f32], id: u32) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&value| f64::from(value - max).exp()).sum();
    sum.ln() - f64::from(row[id as usize] - max)
}
