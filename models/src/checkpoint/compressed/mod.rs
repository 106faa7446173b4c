//! Quantised weights as the compressed-tensors library stores them in safetensors and vLLM and transformers load them:
//! which modules are quantised and how (`scheme`, from `quantization_config`), and one weight put together from the
//! tensors that stand for it (`weights`, `words`).
//!
//! Formats: `int-quantized` (a byte per weight, a factor per output) and `pack-quantized` (4 or 8 bits in 32-bit words,
//! factors and zero points per output or per group of inputs). What else the library knows is refused by name.

mod scheme;
mod targets;
mod weights;
mod words;

pub(super) use scheme::{Quantization, Scheme};
pub(super) use weights::read;

/// Last part of a weight's name.
const WEIGHT: &str = "weight";
/// Bytes of a word of a packed tensor.
const WORD: usize = 4;
