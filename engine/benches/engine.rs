//! What the engine costs around a step: µs per plan and apply of 256 decoding sequences, µs per sampled token.
//! Run with `cargo bench -p ropeteam-engine`. Prints the best of several runs: the machine may be busy.

use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::DeviceCore;
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::{SeqId, TokenId};
use ropeteam_engine::plan::{ChunkResult, StepOutput, Want};
use ropeteam_engine::sampling::{Context, Sampler, SamplingParams, TokenCounts, logprobs, uniform};
use ropeteam_engine::time::Time;
use ropeteam_engine::work::Work;
use std::hint::black_box;
use std::time::Instant;

fn best_us(runs: u32, mut run: impl FnMut()) -> f64 {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..runs)
        .map(|_| time(&mut run))
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    for len in [100, 2000] {
        println!(
            "plan + apply, 256 decoding sequences of {len} tokens: {:.1} us",
            steps(len)
        );
    }
    for vocab in [49_152, 151_936] {
        sampling(vocab);
    }
}

fn steps(len: u32) -> f64 {
    let capacity = Capacity {
        blocks: 65_536,
        block_size: 16,
        max_model_len: 8192,
        max_step_tokens: 8192,
        max_logits_rows: 256,
        vocab: 49_152,
    };
    let limits = BatchLimits {
        max_prefill_batch_size: 256,
        max_decode_batch_size: 256,
        ..BatchLimits::default()
    };
    let mut core = DeviceCore::new(limits, capacity, true);
    for seq in 0..256 {
        core.assign(work(seq, len)).expect("it fits");
    }
    let mut output = StepOutput::default();
    let mut step = || {
        let plan = core.plan(Time::default()).expect("all are decoding");
        let decoding = plan.chunks.len() == 256 && plan.tokens() == 256;
        output.results.clear();
        output
            .results
            .extend(plan.chunks.iter().map(|chunk| match chunk.want {
                Want::Nothing => ChunkResult::Nothing,
                _ => ChunkResult::Best(TokenId(7)),
            }));
        black_box(
            core.apply(&output, Time::default(), None)
                .expect("it fits the plan"),
        );
        decoding
    };
    while !step() {}
    best_us(300, || {
        black_box(step());
    })
}

fn work(seq: u64, len: u32) -> Work {
    Work {
        seq: SeqId(seq),
        prompt: (0..len).map(|i| TokenId(i * 31 + seq as u32)).collect(),
        output: Vec::new(),
        sampling: SamplingParams::greedy().into(),
        constraint: None,
        end_ids: [TokenId(2)].into(),
        min_tokens: 0,
        max_tokens: 4000,
        logprobs: None,
        prompt_logprobs: None,
        pooling: None,
        cache_salt: 0,
        tenant: "".into(),
        priority: 0,
        arrived: Time::default(),
        queue_deadline: None,
    }
}

/// A row of roughly normal logits with a few high ones, as models give them.
fn row(vocab: u64) -> Vec<f32> {
    let normal = |i| (0..6).map(|k| uniform(k, i)).sum::<f64>() as f32 * 2.8 - 8.4;
    (0..vocab)
        .map(|i| normal(i) + if i % 5000 == 17 { 9.0 } else { 0.0 })
        .collect()
}

fn sampling(vocab: u64) {
    let row = row(vocab);
    let plain = SamplingParams::default();
    let tokens: Vec<TokenId> = (0..500).map(TokenId).collect();
    let cases = [
        (
            "greedy with penalties",
            SamplingParams {
                repetition_penalty: 1.1,
                ..SamplingParams::greedy()
            },
        ),
        ("temperature 1", plain.clone()),
        (
            "temperature 0.7, top_p 0.9",
            SamplingParams {
                temperature: 0.7,
                top_p: 0.9,
                ..plain.clone()
            },
        ),
        (
            "top_k 50, top_p 0.9",
            SamplingParams {
                top_k: 50,
                top_p: 0.9,
                ..plain.clone()
            },
        ),
        (
            "temperature 2, top_p 0.95",
            SamplingParams {
                temperature: 2.0,
                top_p: 0.95,
                ..plain.clone()
            },
        ),
        (
            "typical_p 0.9",
            SamplingParams {
                typical_p: 0.9,
                ..plain.clone()
            },
        ),
        (
            "min_p 0.05",
            SamplingParams {
                min_p: 0.05,
                ..plain
            },
        ),
    ];
    let counts = TokenCounts::new(&tokens, &tokens);
    let mut sampler = Sampler::default();
    for (name, params) in &cases {
        let context = Context {
            params,
            prompt: &tokens,
            output: &tokens,
            counts: params.counts_tokens().then_some(&counts),
            banned: &[],
            allowed: None,
        };
        let us = best_us(50, || {
            black_box(sampler.choose(&row, context).expect("a sound row"));
        });
        println!("vocabulary {vocab}, {name}: {us:.0} us");
    }
    let us = best_us(50, || {
        black_box(logprobs(&row, TokenId(5), 5).expect("a sound row"));
    });
    println!("vocabulary {vocab}, log-probabilities with the best 5: {us:.0} us");
}
