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
mod weight_quantised;

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
pub use weight_quantised::{WeightQuantised, weight_quant_matmul};

use crate::fail::Fail;
use crate::task::Access;
use crate::tensor::Tensor;
use crate::timing::Cost;
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
    /// What a launch costs the device.
    pub cost: Cost,
    /// Whether it holds numbers of the host, which a repetition could not change.
    pub holds_host_numbers: bool,
    /// What it computes.
    pub compute: Compute,
    /// Logical number of the device it was prepared on.
    pub device: usize,
    /// Whether it can be launched more than once.
    pub repeatable: bool,
}

impl Executor {
    /// It moves less than all of its tensors.
    fn moving(mut self, bytes: usize) -> Self {
        self.cost.bytes = bytes as u64;
        self
    }

    /// It multiplies and adds.
    fn computing(mut self, flops: usize) -> Self {
        self.cost.flops = flops as u64;
        self
    }
}
