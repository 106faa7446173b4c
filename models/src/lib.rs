//! Models: what stands in a checkpoint, how a family's decoder is built, and the forward pass on any device.
//! Knows no actor, no HTTP and no scheduling; it offers a `StepExecutor` to the engine.
//!
//! ```no_run
//! use ropeteam_device::{ColumnMask, Device, Precision};
//! use ropeteam_models::{Checkpoint, LoadError, ModelInfo, ModelRunner, RunnerOptions, families};
//! use std::path::Path;
//!
//! fn load(
//!     path: &Path,
//!     device: Box<dyn Device>,
//!     precision: Precision,
//!     kv_budget_bytes: u64,
//! ) -> Result<ModelRunner, LoadError> {
//!     let checkpoint = Checkpoint::open(path)?; // files, headers, config
//!     let spec = families::spec(checkpoint.config())?; // shape and variants; refuses what is not built
//!     let info = ModelInfo::gather(&checkpoint, &spec)?; // end ids, sampling defaults, dtype, ...
//!     let block_size = 16;
//!     let kv_blocks = kv_budget_bytes / device.kv_block_bytes(&spec.kv_shape(1, block_size));
//!     let options = RunnerOptions {
//!         kv_blocks: kv_blocks as u32,
//!         block_size: block_size as u32,
//!         max_model_len: info.max_position_embeddings,
//!         max_step_tokens: 512,
//!         max_logits_rows: 64,
//!         // From the tokenizer: ids below the limit that are no holes have a token.
//!         mask: ColumnMask { limit: info.vocab_size as usize, holes: vec![] },
//!     };
//!     ModelRunner::load(&checkpoint, device, options) // the checkpoint may be dropped afterwards
//! }
//! ```
//!
//! `DecoderSpec::weight_bytes` and `DecoderSpec::activation_bytes` tell what else the budget has to hold.
//! A GGUF file's tokenizer and chat template are in `Checkpoint::gguf`; a folder's lie beside `Checkpoint::path`.

mod ahead;
pub mod checkpoint;
mod decoder;
mod error;
pub mod families;
pub mod grammar;
mod info;
pub mod perplexity;
mod pipelined;
pub mod quantize;
mod rope;
mod rounding;
mod runner;
mod sizing;
pub mod source;
pub mod spec;
mod step_rows;
pub mod text;
mod weights;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use error::LoadError;
pub use info::{ModelInfo, SamplingDefaults};
pub use runner::{ModelRunner, RunnerOptions};
pub use spec::DecoderSpec;
