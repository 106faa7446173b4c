//! How large the KV pool and a step may be: from the configuration, the model's shape and the memory that is free.

use super::precision::Weights;
use crate::config::ModelConfig;
use crate::start_error::StartError;
use ropeteam_models::DecoderSpec;
use serde::{Deserialize, Serialize};

/// Sizes that the runner is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Blocks in the KV pool.
    pub kv_blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Longest sequence.
    pub max_model_len: u32,
    /// Most tokens in one step.
    pub max_step_tokens: u32,
    /// Most logits rows in one step.
    pub max_logits_rows: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// What each device has, and what a KV block takes there.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes that are free before anything is loaded.
    pub free: u64,
    /// Tokens of a block.
    pub block_size: u32,
    /// Bytes of a block.
    pub kv_block: u64,
}

impl Sizes {
    /// Bytes of the pool.
    pub fn kv_bytes(&self) -> u64 {
        u64::from(self.kv_blocks) * self.block_bytes
    }

    /// Tokens that the pool holds.
    pub fn kv_tokens(&self) -> u64 {
        u64::from(self.kv_blocks) * u64::from(self.block_size)
    }
}

/// Most sequences that run at once.
pub fn max_running(config: &ModelConfig) -> u32 {
    let limit = config.max_decode_batch_size;
    config
        .max_running
        .map_or(limit, |running| running.min(limit))
}

/// Most tokens of a prompt, where sequences have at most `max_model_len`: one place is left for the first new token.
pub fn max_input_len(config: &ModelConfig, max_model_len: u32) -> u32 {
    let room = max_model_len.saturating_sub(1);
    config.max_input_tokens.map_or(room, |most| most.min(room))
}

/// Most tokens of an output, where sequences have at most `max_model_len`.
pub fn max_output_len(config: &ModelConfig, max_model_len: u32) -> u32 {
    let room = max_model_len;
    config.max_output_tokens.map_or(room, |most| most.min(room))
}

/// Works the sizes out.
///
/// # Errors
/// A length beyond the model's, or memory that is too small, with the numbers.
pub fn sizes(
    config: &ModelConfig,
    spec: &DecoderSpec,
    weights: &Weights<'_>,
    memory: Memory,
) -> Result<Sizes, StartError> {
    let Memory {
        free,
        block_size,
        kv_block: block_bytes,
    } = memory;
    let mut sizes = Sizes {
        kv_blocks: 0,
        block_size,
        max_model_len: max_model_len(config, spec)?,
        max_step_tokens: config
            .max_prefill_tokens
            .saturating_add(max_running(config)),
        max_logits_rows: max_running(config) + config.max_prefill_batch_size,
        block_bytes,
    };
    let steps = (
        sizes.max_step_tokens as usize,
        sizes.max_logits_rows as usize,
    );
    let loaded = weights.bytes(spec) + spec.activation_bytes(steps.0, steps.1);
    if loaded >= free {
        let what = format!(
            "weights and activations need {}, {} are free",
            bytes(loaded),
            bytes(free)
        );
        return Err(StartError::Device(what));
    }
    sizes.kv_blocks = match config.kv_blocks {
        Some(blocks) if u64::from(blocks) * block_bytes > free - loaded => {
            let needed = bytes(u64::from(blocks) * block_bytes);
            let what = format!(
                "kv_blocks {blocks} need {needed}, {} are free after loading",
                bytes(free - loaded)
            );
            return Err(StartError::Device(what));
        }
        Some(blocks) => blocks,
        None => blocks_in(config.kv_memory.of(free - loaded), &sizes, config)?,
    };
    Ok(sizes)
}

fn max_model_len(config: &ModelConfig, spec: &DecoderSpec) -> Result<u32, StartError> {
    let made_for = u32::try_from(spec.max_positions).unwrap_or(u32::MAX);
    match config.max_model_len {
        Some(wanted) if wanted > made_for => Err(StartError::Usage(format!(
            "max_model_len: {wanted} is over the {made_for} tokens that the model was made for"
        ))),
        Some(wanted) => Ok(wanted),
        None => Ok(made_for),
    }
}

/// Blocks that a budget buys. Not more than all running sequences at full length can use, and as much again for the prefix
/// cache: small models would otherwise get pools larger than anybody needs.
fn blocks_in(budget: u64, sizes: &Sizes, config: &ModelConfig) -> Result<u32, StartError> {
    let per_sequence = u64::from(sizes.max_model_len.div_ceil(sizes.block_size));
    let useful = 2 * per_sequence * u64::from(max_running(config));
    let blocks = (budget / sizes.block_bytes).min(useful);
    match u32::try_from(blocks) {
        Ok(0) => Err(StartError::Device(format!(
            "kv_memory of {} holds no block of {} tokens, which needs {}",
            bytes(budget),
            sizes.block_size,
            bytes(sizes.block_bytes)
        ))),
        Ok(blocks) => Ok(blocks),
        Err(_) => Ok(u32::MAX),
    }
}

/// "1.5 GiB", as people read it.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut number = count as f64 / 1024.0;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    format!("{number:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Inputs, resolve};
    use ropeteam_device::Precision;
    use ropeteam_models::checkpoint::Checkpoint;
    use ropeteam_models::{ModelInfo, families};
    use std::path::Path;

    const FREE: u64 = 1 << 30;

    fn found(flags: &[(&'static str, &str)], free: u64) -> Result<Sizes, String> {
        let flags = flags
            .iter()
            .map(|(key, word)| (*key, (*word).to_owned()))
            .collect();
        let config = resolve(Inputs {
            flags,
            ..Inputs::default()
        })
        .expect("good flags")
        .config;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny/llama");
        let checkpoint = Checkpoint::open(&folder).expect("fixture");
        let spec = families::spec(checkpoint.config()).expect("fixture");
        let info = ModelInfo::gather(&checkpoint, &spec).expect("fixture");
        let weights = Weights {
            precision: Precision::F32,
            half: ropeteam_device::Float::Bf16,
            info: &info,
        };
        let memory = Memory {
            free,
            block_size: 16,
            kv_block: 4096,
        };
        sizes(&config.model_config, &spec, &weights, memory).map_err(|error| error.to_string())
    }

    #[test]
    fn the_pool_is_what_the_budget_buys() {
        let small = found(&[("kv_memory", "1MiB")], FREE).unwrap();
        let large = found(&[("kv_memory", "2MiB")], FREE).unwrap();
        assert_eq!(large.kv_blocks, 2 * small.kv_blocks);
    }

    #[test]
    fn the_pool_is_not_larger_than_anybody_needs() {
        let sizes = found(
            &[
                ("kv_memory", "95%"),
                ("max_running", "2"),
                ("max_model_len", "64"),
            ],
            FREE,
        )
        .unwrap();
        assert_eq!(sizes.kv_blocks, 2 * 2 * 64 / 16);
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_numbers() {
        let told = |flags: &[_], free| found(flags, free).unwrap_err();
        assert!(told(&[], 1000).starts_with("device: weights and activations need "));
        assert!(
            told(&[("kv_blocks", "1000000")], FREE).starts_with("device: kv_blocks 1000000 need ")
        );
        assert!(
            told(&[("kv_memory", "10B")], FREE)
                .starts_with("device: kv_memory of 10 B holds no block of 16 tokens")
        );
        assert!(
            told(&[("max_model_len", "1000000")], FREE).contains("that the model was made for")
        );
    }

    #[test]
    fn bytes_are_told_in_units_that_people_read() {
        let check = |count, expected: &str| assert_eq!(bytes(count), expected);
        check(10, "10 B");
        check(1536, "1.5 KiB");
        check(3 << 30, "3.0 GiB");
    }
}
