//! Structured output: from a JSON schema, a regular expression, a list of choices or a grammar to the masks that `engine::constraint` asks
//! for. Grammars are followed by the crate `llguidance`; its types stay in here. Not here: the request fields (the server).
//!
//! | file | what |
//! | --- | --- |
//! | `spec.rs`, `ebnf.rs` | [`GrammarSpec`]: what may be asked for, and its way into Lark |
//! | `schema.rs` | JSON schemas: what is wrong with one, whether any value ends |
//! | `vocabulary.rs` | the tokens as bytes |
//! | `compiled.rs`, `masks.rs` | one grammar and the state of a sequence in it; the threads that make masks |
//!
//! Bounds: a text is at most [`TEXT_BYTES_MAX`] long, [`NESTING_MAX`] deep, and compiles within the limits of `vocabulary.rs`, which bound a
//! mask as well. What is compiled is kept for who asks for the same again.

mod compiled;
mod ebnf;
mod masks;
mod schema;
mod spec;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use spec::{GrammarSpec, Whitespace};

use compiled::Compiled;
use llguidance::ParserFactory;
use masks::MaskThreads;
use ropeteam_engine::constraint::Constraint;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::TextCodec;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Longest schema, expression or grammar, in bytes; of choices all together.
pub const TEXT_BYTES_MAX: usize = 128 << 10;
/// Most brackets inside each other.
pub const NESTING_MAX: usize = 200;
/// Compiled grammars that are kept.
const KEPT: usize = 64;
/// Compiling walks down a grammar by recursion; what a text within the bounds needs of this was measured to be a fraction.
const STACK_BYTES: usize = 64 << 20;

/// Why a grammar cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// It is wrong, or asks for what is not supported.
    #[error("{0}")]
    Invalid(String),
    /// It is over a bound.
    #[error("{what} is {given}, at most {limit} is possible")]
    TooLarge {
        /// "its length in bytes" or "its depth of nesting".
        what: &'static str,
        /// Of this one.
        given: usize,
        /// The bound.
        limit: usize,
    },
    /// This model cannot follow any.
    #[error("structured output is not possible with this model: {0}")]
    Model(String),
}

/// Compiles the grammars of one model. Shared by all requests.
pub struct Grammars {
    codec: Arc<dyn TextCodec>,
    eos_ids: Vec<TokenId>,
    /// Made when the first grammar comes: most servers never see one.
    workshop: OnceLock<Result<Workshop, GrammarError>>,
    /// The last ones used, the newest last.
    kept: Mutex<VecDeque<(GrammarSpec, Arc<Compiled>)>>,
}

struct Workshop {
    factory: ParserFactory,
    masks: MaskThreads,
}

impl Grammars {
    /// For a model with that tokenizer whose answers end with one of `eos_ids`.
    pub fn new(codec: Arc<dyn TextCodec>, eos_ids: Vec<TokenId>) -> Self {
        Grammars {
            codec,
            eos_ids,
            workshop: OnceLock::new(),
            kept: Mutex::default(),
        }
    }

    /// Compiles a grammar, or finds it among those that were. Takes milliseconds, the first time some hundred: call it where waiting
    /// hurts nobody.
    ///
    /// # Errors
    /// What is wrong with it, for who wrote it.
    pub fn compile(&self, spec: &GrammarSpec) -> Result<Arc<dyn Constraint>, GrammarError> {
        if let Some(found) = self.known(spec) {
            return Ok(found);
        }
        spec.check_size()?;
        let workshop = self.workshop.get_or_init(|| self.open_workshop());
        let workshop = workshop.as_ref().map_err(Clone::clone)?;
        let compiled = Arc::new(on_deep_stack(|| workshop.compile(spec))?);
        self.keep(spec, &compiled);
        Ok(compiled)
    }

    /// Compiles what a constraint of the same model gave as its [`source`](Constraint::source), maybe in another process.
    ///
    /// # Errors
    /// As [`compile`](Self::compile), and for a text that is no source.
    pub fn compile_source(&self, source: &str) -> Result<Arc<dyn Constraint>, GrammarError> {
        self.compile(&GrammarSpec::from_source(source)?)
    }

    fn open_workshop(&self) -> Result<Workshop, GrammarError> {
        Ok(Workshop {
            factory: vocabulary::factory(&*self.codec, &self.eos_ids)?,
            masks: MaskThreads::start().map_err(|error| GrammarError::Model(error.to_string()))?,
        })
    }

    /// A grammar that was compiled lately; costs nothing.
    pub fn known(&self, spec: &GrammarSpec) -> Option<Arc<dyn Constraint>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(other, _)| other == spec)?;
        let entry = kept.remove(at)?;
        let found = entry.1.clone();
        kept.push_back(entry);
        Some(found)
    }

    fn keep(&self, spec: &GrammarSpec, compiled: &Arc<Compiled>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back((spec.clone(), compiled.clone()));
    }
}

impl Workshop {
    fn compile(&self, spec: &GrammarSpec) -> Result<Compiled, GrammarError> {
        let parser = self.factory.create_parser(spec.grammar()?);
        let parser = parser.map_err(|error| GrammarError::Invalid(first_lines(&error)))?;
        Compiled::new(spec, parser, self.masks.clone())
    }
}

/// The compiler's words without its drawings of where it was.
fn first_lines(error: &dyn std::fmt::Display) -> String {
    const CHARS_MAX: usize = 400;
    let text = error.to_string();
    let text = text.split("<backtrace>").next().unwrap_or_default();
    text.trim().chars().take(CHARS_MAX).collect()
}

/// Runs `work` on a thread with room for deep recursion, and waits for it.
fn on_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, GrammarError> + Send,
) -> Result<T, GrammarError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work);
        let thread = thread.map_err(|error| GrammarError::Model(error.to_string()))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(GrammarError::Invalid("it cannot be compiled".to_owned())))
    })
}
