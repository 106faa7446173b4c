//! How fast is a step of a model on the CPU, without any server around it? Prefill of one prompt, decode of one sequence with
//! little and with much context, decode of batches: the median step of each, and tokens/s over all of them.
//! `cargo run --release -p ropeteam-models --example speed -- MODEL [PRECISION] [THREADS] [FILTER]`.

use ropeteam_device::{ColumnMask, CpuDevice, CpuOptions, Device, KvPrecision, Precision};
use ropeteam_engine::executor::StepExecutor;
use ropeteam_engine::ids::{BlockId, SeqId, TokenId};
use ropeteam_engine::plan::{Chunk, StepOutput, StepPlan, Want};
use ropeteam_models::{Checkpoint, ModelInfo, ModelRunner, RunnerOptions, families};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK_SIZE: u32 = 16;
const MAX_STEP_TOKENS: u32 = 1024;
const USAGE: &str = "usage: speed MODEL [f32|bf16|stored|int8|int4] [THREADS] [FILTER]";

/// Steps of `rows` new tokens for each of `sequences` sequences that hold `context` tokens already.
struct Case {
    name: &'static str,
    sequences: u32,
    context: u32,
    rows: u32,
    steps: u32,
}

#[rustfmt::skip]
const CASES: [Case; 8] = [
    Case { name: "prefill of 512", sequences: 1, context: 0, rows: 512, steps: 7 },
    Case { name: "prefill of 1024", sequences: 1, context: 0, rows: 1024, steps: 5 },
    Case { name: "one stream at 128", sequences: 1, context: 128, rows: 1, steps: 128 },
    Case { name: "one stream at 1024", sequences: 1, context: 1024, rows: 1, steps: 128 },
    Case { name: "one stream at 4096", sequences: 1, context: 4096, rows: 1, steps: 64 },
    Case { name: "4 streams at 256", sequences: 4, context: 256, rows: 1, steps: 64 },
    Case { name: "16 streams at 256", sequences: 16, context: 256, rows: 1, steps: 32 },
    Case { name: "64 streams at 256", sequences: 64, context: 256, rows: 1, steps: 16 },
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or(USAGE)?;
    let numbers = arguments.next().unwrap_or_else(|| "bf16".to_owned());
    let (weights, kv) = match numbers.split_once('+') {
        None => (&*numbers, KvPrecision::ByWeights),
        Some((weights, "kv8")) => (weights, KvPrecision::Int8),
        Some(_) => return Err(USAGE.into()),
    };
    let precision = match weights {
        "f32" => Precision::F32,
        "bf16" => Precision::Bf16,
        "stored" => Precision::Stored,
        "int8" => Precision::Int8,
        "int4" => Precision::Int4,
        _ => return Err(USAGE.into()),
    };
    let threads = match arguments.next() {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism()?.get(),
    };
    let filter = arguments.next().unwrap_or_default();
    let start = Instant::now();
    let options = CpuOptions {
        precision,
        kv,
        threads,
    };
    let mut model = Model::load(Path::new(&path), options)?;
    println!("loaded in {:.2} s", start.elapsed().as_secs_f64());
    for case in CASES.iter().filter(|case| case.name.contains(&filter)) {
        let mut steps = model.steps(case)?;
        steps.sort();
        let median = steps[steps.len() / 2].as_secs_f64();
        let all = steps.iter().sum::<Duration>().as_secs_f64();
        println!(
            "{}: {:.3} ms a step, {:.1} tokens/s",
            case.name,
            median * 1e3,
            f64::from(case.sequences * case.rows * case.steps) / all
        );
    }
    Ok(())
}

/// A model and what its steps need.
struct Model {
    runner: ModelRunner,
    vocab: u32,
    /// Blocks that each sequence of a case has at its disposal.
    blocks_each: u32,
    output: StepOutput,
}

impl Model {
    fn load(path: &Path, options: CpuOptions) -> Result<Self, Box<dyn Error>> {
        let checkpoint = Checkpoint::open(path)?;
        let spec = families::spec(checkpoint.config())?;
        let info = ModelInfo::gather(&checkpoint, &spec)?;
        let device = CpuDevice::new(options);
        println!(
            "{}: {} million weights, {:?}",
            info.architecture,
            info.parameters / 1_000_000,
            info.dtype
        );
        println!("{}, {:?}", device.info().name, options.precision);
        let tokens = CASES.iter().map(Case::tokens).max().unwrap_or(0);
        let runner_options = RunnerOptions {
            kv_blocks: tokens.div_ceil(BLOCK_SIZE),
            block_size: BLOCK_SIZE,
            max_model_len: info.max_position_embeddings.min(tokens),
            max_step_tokens: MAX_STEP_TOKENS,
            max_logits_rows: 64,
            mask: ColumnMask {
                limit: spec.vocab,
                holes: vec![],
            },
        };
        Ok(Self {
            runner: ModelRunner::load(&checkpoint, Box::new(device), runner_options)?,
            vocab: info.vocab_size,
            blocks_each: 0,
            output: StepOutput::default(),
        })
    }

    /// Durations of the case's steps, after one to warm up.
    fn steps(&mut self, case: &Case) -> Result<Vec<Duration>, Box<dyn Error>> {
        self.blocks_each = case.tokens().div_ceil(BLOCK_SIZE) / case.sequences;
        for sequence in 0..case.sequences {
            for start in (0..case.context).step_by(MAX_STEP_TOKENS as usize) {
                let rows = MAX_STEP_TOKENS.min(case.context - start);
                let chunk = self.chunk(sequence, start, rows, Want::Nothing);
                self.step(vec![chunk])?;
            }
        }
        let mut times = Vec::new();
        for step in 0..=case.steps {
            // A prompt is computed again and again, a decoded sequence grows.
            let start = if case.rows > 1 {
                0
            } else {
                case.context + step
            };
            let chunks = (0..case.sequences)
                .map(|sequence| self.chunk(sequence, start, case.rows, Want::Argmax))
                .collect();
            times.push(self.step(chunks)?);
        }
        Ok(times.split_off(1))
    }

    fn chunk(&self, sequence: u32, start: u32, rows: u32, want: Want) -> Chunk {
        let token = |i: u32| TokenId((i * 31 + sequence * 17 + 7) % self.vocab);
        let blocks = sequence * self.blocks_each..(sequence + 1) * self.blocks_each;
        Chunk {
            seq: SeqId(u64::from(sequence)),
            tokens: (start..start + rows).map(token).collect(),
            start,
            blocks: blocks.map(BlockId).collect(),
            want,
        }
    }

    fn step(&mut self, chunks: Vec<Chunk>) -> Result<Duration, Box<dyn Error>> {
        let plan = StepPlan { chunks };
        let start = Instant::now();
        self.runner.step(&plan, &mut self.output)?;
        Ok(start.elapsed())
    }
}

impl Case {
    /// Tokens that its sequences come to, in whole blocks.
    const fn tokens(&self) -> u32 {
        let each = self.context + self.rows + self.steps + 1;
        each.div_ceil(BLOCK_SIZE) * BLOCK_SIZE * self.sequences
    }
}
