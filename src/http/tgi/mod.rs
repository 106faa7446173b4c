//! The TGI dialect as of 0.9.4, the version that MindIE names: `/`, `/generate`, `/generate_stream`, `/invocations`, `/info`, `/tokenize`,
//! `/chat_tokenize`. Later fields (`grammar`, `top_n_tokens`, `frequency_penalty` and the like) are always taken; where later versions, or
//! MindIE, answer otherwise, an option says whose answer it is.
//!
//! | file | what |
//! | --- | --- |
//! | `version.rs` | whose form it is where they differ |
//! | `parameters/` | the request: defaults, ranges and exact error texts |
//! | `invocations.rs` | one route for generation, chats and completions |
//! | `generate.rs` | the generation routes and their computed headers |
//! | `wire.rs`, `frames.rs` | shapes of whole and streamed answers |
//! | `info.rs`, `tokenize.rs`, `chat_tokenize.rs` | the other routes |
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

pub mod chat_tokenize;
pub mod error;
mod frames;
pub mod generate;
mod grammar;
pub mod info;
pub mod invocations;
mod parameters;
pub mod tokenize;
mod version;
mod wire;

pub use version::Version;

pub(in crate::http) use frames::{StreamParts, TgiFrames};
pub(in crate::http) use wire::Generated;

/// Where the description has the fields of a request type, and their names.
#[cfg(test)]
pub fn field_names(
    ask: super::openapi::tests::FieldNames,
) -> std::collections::BTreeMap<&'static str, std::collections::BTreeSet<String>> {
    [
        (
            "/GenerateRequest/properties",
            ask.of::<parameters::Request>(),
        ),
        (
            "/GenerateRequest/properties/parameters/properties",
            ask.of::<parameters::Parameters>(),
        ),
    ]
    .into()
}
