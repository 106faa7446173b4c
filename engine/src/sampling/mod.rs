//! From a logits row to the next token: processors in a fixed order, then the draw.

mod params;

pub use params::SamplingParams;
