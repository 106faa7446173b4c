//! Operators: what each asks of its arguments (first phase) and what it computes (second phase), one family per file. They know
//! tensors, never handles or streams.

mod arguments;
mod attention;
mod cache;
mod elementwise;
mod lookup;
mod matmul;
mod norm;
mod quantised;
mod rope;
mod search;

pub use arguments::{Arguments, Operand, Role};
pub use attention::{Attention, attention};
pub use cache::{Scatter, scatter};
pub use elementwise::{cast, inplace_add, inplace_copy, swiglu};
pub use lookup::{embedding, index_select};
pub use matmul::matmul;
pub use norm::{add_rms_norm, inplace_add_rms_norm, rms_norm};
pub use quantised::{Quantised, dynamic_quant, quant_matmul};
pub use rope::{Rotation, rotate};
pub use search::{Wanted, argmax, max_dim, topk};

use crate::fail::Fail;
use crate::task::Access;
use crate::tensor::Tensor;
use std::sync::Arc;

/// What an operator computes on its tensors, in the order in which they were given.
pub type Compute = Arc<dyn Fn(&mut Access<'_>, &[Tensor]) -> Result<(), Fail> + Send + Sync>;

/// An operator with its arguments.
#[derive(Clone)]
pub struct Executor {
    /// Its name.
    pub operator: &'static str,
    /// Its tensors.
    pub operands: Vec<Operand>,
    /// Bytes of workspace that a launch needs.
    pub workspace: u64,
    /// Whether it holds numbers of the host, which a repetition could not change.
    pub holds_host_numbers: bool,
    /// What it computes.
    pub compute: Compute,
    /// Logical number of the device it was prepared on.
    pub device: usize,
    /// Whether it can be launched more than once.
    pub repeatable: bool,
}
