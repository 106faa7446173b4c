//! Prompt-lookup speculation: guessing a sequence's next tokens from its own text, so that one step can check several of them.
//! A guess decides nothing: the token that follows is chosen from the model's logits as ever, and a guess only saves a step when it is
//! that very token. So the output is the same with and without it.
//!
//! `ngram` guesses, `eagerness` says how many guesses are worth trying. Not here: their place in a step (`device_core::drafts`) and the
//! check (`device_core::apply`).
//!
//! Source: Saxena, "Prompt lookup decoding", 2023; the rule of acceptance is the exact one for a deterministic guess (Leviathan et al.,
//! "Fast inference from transformers via speculative decoding", 2023), with the random number that the token is drawn with anyway.

mod eagerness;
mod ngram;

pub use eagerness::Eagerness;
pub use ngram::guess;

/// Most guesses of one sequence in a step.
pub const DRAFTS_MAX: u32 = 7;
