//! How fast is one sequence? Prefill and decode of a model on the CPU, without any server around it:
//! `cargo run --release -p ropeteam-models --example speed -- MODEL [f32|bf16] [THREADS]`.

use ropeteam_device::{ColumnMask, CpuDevice, CpuOptions, Device, Precision};
use ropeteam_engine::executor::StepExecutor;
use ropeteam_engine::ids::{BlockId, SeqId, TokenId};
use ropeteam_engine::plan::{Chunk, StepOutput, StepPlan, Want};
use ropeteam_models::{Checkpoint, ModelInfo, ModelRunner, RunnerOptions, families};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

const PROMPT_TOKENS: u32 = 512;
const OUTPUT_TOKENS: u32 = 128;
const BLOCK_SIZE: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: speed MODEL [f32|bf16] [THREADS]")?;
    let precision = match arguments.next().as_deref() {
        Some("f32") => Precision::F32,
        None | Some("bf16") => Precision::Bf16,
        Some(other) => return Err(format!("{other} is neither f32 nor bf16").into()),
    };
    let threads = match arguments.next() {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism()?.get(),
    };
    let start = Instant::now();
    let (mut runner, vocab) = load(Path::new(&path), CpuOptions { precision, threads })?;
    println!("loaded in {:.2} s", start.elapsed().as_secs_f64());

    let prompt: Vec<TokenId> = (0..PROMPT_TOKENS)
        .map(|i| TokenId((i * 31 + 7) % vocab))
        .collect();
    let start = Instant::now();
    run(&mut runner, prompt, 0)?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "prefill of {PROMPT_TOKENS}: {:.1} tokens/s",
        f64::from(PROMPT_TOKENS) / seconds
    );

    let start = Instant::now();
    for position in PROMPT_TOKENS..PROMPT_TOKENS + OUTPUT_TOKENS {
        run(&mut runner, vec![TokenId(position % vocab)], position)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "decode of {OUTPUT_TOKENS}: {:.1} tokens/s",
        f64::from(OUTPUT_TOKENS) / seconds
    );
    Ok(())
}

fn load(path: &Path, options: CpuOptions) -> Result<(ModelRunner, u32), Box<dyn Error>> {
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
    let tokens = PROMPT_TOKENS + OUTPUT_TOKENS;
    let runner_options = RunnerOptions {
        kv_blocks: tokens.div_ceil(BLOCK_SIZE),
        block_size: BLOCK_SIZE,
        max_model_len: tokens.min(info.max_position_embeddings),
        max_step_tokens: PROMPT_TOKENS,
        max_logits_rows: 1,
        mask: ColumnMask {
            limit: spec.vocab,
            holes: vec![],
        },
    };
    let runner = ModelRunner::load(&checkpoint, Box::new(device), runner_options)?;
    Ok((runner, info.vocab_size))
}

fn run(runner: &mut ModelRunner, tokens: Vec<TokenId>, start: u32) -> Result<(), Box<dyn Error>> {
    let blocks = (0..runner.capacity().blocks).map(BlockId).collect();
    let chunk = Chunk {
        seq: SeqId(0),
        tokens,
        start,
        blocks,
        want: Want::Argmax,
    };
    runner.step(
        &StepPlan {
            chunks: vec![chunk],
        },
        &mut StepOutput::default(),
    )?;
    Ok(())
}
