//! SIMD kernels on packed weights, one operator per file, each with its plain reference in `reference`.
//! Knows slices of numbers, an instruction set and a thread pool; knows no model, no device and no buffer management.
//!
//! The rule behind every file: a row's result has the same bits whatever rows stand beside it, however the work is cut
//! into tiles, chunks and threads. Sums therefore run in one fixed order, and threads split rows, columns or heads only.

#![deny(clippy::undocumented_unsafe_blocks)]

mod add;
mod aligned;
mod argmax;
pub mod attention;
pub mod dequant;
mod disjoint;
mod dtype;
mod embed;
mod exp;
mod format;
mod int_tile;
mod isa;
pub mod kv;
pub mod limits;
mod linear;
mod machine;
mod matrix;
mod norm;
mod pack;
mod pool;
mod product;
pub mod reference;
pub mod rope;
mod rows;
mod shape;
mod silu;
mod simd;
mod strip;
mod tile;

pub use add::add;
pub use argmax::{Candidates, argmax};
pub use attention::attention;
pub use dtype::Dtype;
pub use embed::embed;
pub use format::{Format, RowForm};
pub use isa::Isa;
pub use kv::KvCache;
pub use linear::{linear, linear_prepared};
pub use machine::Machine;
pub use matrix::{Matrix, MatrixId, MatrixStore, Source};
pub use norm::{Heads, NormBefore, add_rms_norm, head_norm, prepare_add_norm, rms_norm};
pub use pool::Pool;
pub use rows::PreparedRows;
pub use silu::{prepare_silu_mul, silu_mul};
