//! The simulated device: no weights, a tokenizer of single characters, the time of a small model or none. For demos and load tests.

use super::build::{Base, Hooks, Recipe};
use super::isolation;
use super::sizing::{Sizes, bytes, max_input_len, max_output_len, max_running};
use super::{Footprint, Loaded};
use crate::config::{Config, ModelConfig};
use crate::http::state::ModelCard;
use crate::start_error::StartError;
use ropeteam_actors::EngineParts;
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::text::TextCodec;
use ropeteam_models::text::{ChatTemplate, SpecialTokens};
use ropeteam_sim::codec::{END_OF_TEXT, END_TEXT, SimCodec};
use ropeteam_sim::executor::HIDDEN;
use std::sync::Arc;

/// What `--device` calls it.
pub const NAME: &str = "simulated";
/// Every server simulates the same model.
const SEED: u64 = 1;
/// Longest sequence and blocks where the configuration leaves them open.
const MODEL_LEN: u32 = 8192;
const BLOCKS: u32 = 8192;
/// Tokens per block where nobody says otherwise.
const SIMULATED_BLOCK: u32 = 16;

/// The parts of a server without a model.
///
/// # Errors
/// None that the simulated device has.
pub fn load(config: &Config) -> Result<Loaded, StartError> {
    let codec = SimCodec::default();
    let sizes = sizes(&config.model_config);
    let capacity = Capacity {
        blocks: sizes.kv_blocks,
        block_size: sizes.block_size,
        max_model_len: sizes.max_model_len,
        max_step_tokens: sizes.max_step_tokens,
        max_logits_rows: sizes.max_logits_rows,
        vocab: codec.vocab_size(),
    };
    let recipe = Recipe {
        base: Base::Simulated {
            capacity,
            seed: SEED,
            time: config.model_config.simulated_time,
        },
        hooks: Hooks::from(&config.debug_config),
    };
    let codec: Arc<dyn TextCodec> = Arc::new(codec);
    let recipes = vec![recipe; usize::from(config.model_config.device_count)];
    let devices = isolation::devices(recipes.into_iter(), config)?;
    let model = &config.model_config;
    Ok(Loaded {
        parts: EngineParts {
            codec,
            eos_ids: vec![END_OF_TEXT],
            devices,
        },
        chat: template(),
        special: SpecialTokens::from_pairs([("eos_token", END_TEXT)]),
        model: ModelCard {
            names: vec![model.served_name.clone().unwrap_or_else(|| NAME.to_owned())],
            root: NAME.to_owned(),
            revision: None,
            dtype: NAME.to_owned(),
            device_type: NAME.to_owned(),
            max_model_len: sizes.max_model_len,
            max_input_len: max_input_len(&config.model_config, sizes.max_model_len),
            max_output_len: max_output_len(&config.model_config, sizes.max_model_len),
            hidden_size: HIDDEN,
        },
        defaults: SamplingParams::default(),
        footprint: Footprint {
            device: NAME.to_owned(),
            dtype: NAME,
            weights: bytes(0),
            kv_memory: bytes(0),
            sizes,
        },
        files: None,
    })
}

/// The turns one after the other.
fn template() -> Result<Arc<ChatTemplate>, String> {
    let source = "{% for message in messages %}{{ message.content }} {% endfor %}";
    let template = ChatTemplate::from_source(source, NAME, &SpecialTokens::default());
    template.map(Arc::new).map_err(|error| error.to_string())
}

fn sizes(config: &ModelConfig) -> Sizes {
    Sizes {
        kv_blocks: config.kv_blocks.unwrap_or(BLOCKS),
        block_size: config.kv_block_size.unwrap_or(SIMULATED_BLOCK),
        max_model_len: config.max_model_len.unwrap_or(MODEL_LEN),
        max_step_tokens: config.max_prefill_tokens + max_running(config),
        max_logits_rows: max_running(config) + config.max_prefill_batch_size,
        block_bytes: 0,
    }
}
