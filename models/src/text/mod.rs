//! Text of a model: the tokenizer, the incremental detokeniser and the chat template.
//! Not here: stop strings and sampling (engine), what a dialect's messages look like on the wire (the server).
//!
//! | file | what |
//! | --- | --- |
//! | `codec.rs` | [`Codec`]: tokenizer.json behind `ropeteam_engine::text::TextCodec` |
//! | `pieces.rs`, `decode.rs` | from one token after the other to whole characters |
//! | `gguf.rs`, `gguf/` | the same from a GGUF file's metadata |
//! | `special_tokens.rs` | the named tokens of tokenizer_config.json |
//! | `template/` | [`ChatTemplate`]: Hugging Face chat templates |
//!
//! # Example
//!
//! ```no_run
//! use ropeteam_engine::text::TextCodec;
//! use ropeteam_models::text::{ChatTemplate, Codec, RenderInput, SpecialTokens};
//! use serde_json::json;
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = Path::new("SmolLM2-135M-Instruct");
//! let codec = Codec::from_folder(folder)?;
//! let template = ChatTemplate::load(folder, &SpecialTokens::load(folder)?)?;
//!
//! let messages = [json!({"role": "user", "content": "Hello"})];
//! let prompt = template.render(&RenderInput::new(&messages))?;
//! // A rendered chat holds its begin token already: never let the tokenizer add a second one.
//! let ids = codec.encode(&prompt, false)?;
//!
//! let mut decoder = codec.decoder(&ids, true);
//! for id in [codec.encode("Hi", false)?[0]] {
//!     print!("{}", decoder.push(id));
//! }
//! println!("{}", decoder.finish());
//! # Ok(())
//! # }
//! ```

mod codec;
mod decode;
mod error;
mod gguf;
mod pieces;
mod special_tokens;
mod template;
mod vocabulary;

pub use codec::Codec;
pub use error::{TemplateError, TokenizerError};
pub use gguf::GgufText;
pub use special_tokens::SpecialTokens;
pub use template::{ChatTemplate, Clock, RenderInput};

#[cfg(test)]
mod fixtures;
