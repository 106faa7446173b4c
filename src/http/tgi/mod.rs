//! The TGI dialect as of 0.9.4, the version that MindIE names: `/`, `/generate`, `/generate_stream`, `/invocations`, `/info`, `/tokenize`.
//! Of the later fields, `frequency_penalty`, `ignore_eos` and the like are taken where the engine has them.
//!
//! | file | what |
//! | --- | --- |
//! | `parameters.rs` | the request: defaults, ranges and exact error texts |
//! | `generate.rs` | the generation routes and their computed headers |
//! | `wire.rs`, `frames.rs` | shapes of whole and streamed answers |
//! | `info.rs`, `tokenize.rs` | the other routes |
//! | `error.rs` | how a refusal looks |
//!
//! What is the original's and looks odd: a temperature of 0 is an error, `top_p` of 1 too; `POST /` answers with an array of one;
//! the stop sequence stays in the text; `do_sample: false` still samples when a temperature other than 1, `top_k`, `top_p` or
//! `typical_p` is given, as the original's token chooser does.
//!
//! What differs: `POST /` repeats the prompt only when `return_full_text` says so. The original does it by default for its pipeline
//! `text-generation`, which surprises clients that leave the field out.
//!
//! Log-probabilities are those of the model's unmodified distribution.

pub mod error;
mod frames;
pub mod generate;
mod grammar;
pub mod info;
mod parameters;
pub mod tokenize;
mod wire;

pub(in crate::http) use frames::{StreamParts, TgiFrames};
pub(in crate::http) use wire::Generated;
