//! Rewrites a model in few bits, as a folder that vLLM, transformers and this crate load: `int8` per output, `int4` per group of
//! inputs. Embedding, head, norms and biases stay floats.
//!
//! int8 needs no text: the arithmetic is that of loading with int8 weights (`crate::rounding`). int4 is rounded with error
//! feedback (`feedback`) on a calibration text, which runs through the model once (`calibrating`).

mod calibrating;
mod error;
mod feedback;
mod folder;
mod grid;
mod hessian;
mod int4;
mod int8;
mod output;
mod scheme;
mod shards;

pub use error::QuantizeError;
pub use folder::remove_unfinished;
pub use grid::Int4Format;
pub use int4::{Calibration, int4};
pub use int8::int8;

/// The text that is used when no other is given: the chapters I, II and X of "Around the World in Eighty Days" (Jules Verne, in
/// the translation of 1873, which is in the public domain), and pieces of our own in several languages, with code and numbers.
pub const CALIBRATION_TEXT: &str = include_str!("calibration.txt");

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Matrices in few bits.
    pub matrices: usize,
    /// Bytes of all tensors.
    pub bytes: usize,
}

/// Hears how many of all projections are done.
pub type Told<'a> = &'a mut dyn FnMut(usize, usize);
