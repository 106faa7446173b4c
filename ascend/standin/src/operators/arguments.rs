//! The first phase's checks in the words of the documentation: required, type, shape, contiguous; and what each failure is called.

use super::{Compute, Executor};
use crate::fail::{Fail, failure, mistake};
use crate::objects::{Objects, found};
use crate::settings::Settings;
use crate::task::Id;
use crate::tensor::Tensor;
use crate::timing::Cost;
use ropeteam_acl_sys::code::*;
use ropeteam_acl_sys::types::*;

/// Types that an operator computes with on every chip that has them.
pub const FLOATS: &[aclDataType] = &[ACL_FLOAT16, ACL_BF16, ACL_FLOAT];
/// Types of indices.
pub const INDICES: &[aclDataType] = &[ACL_INT32, ACL_INT64];

/// What an operator does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads it.
    In,
    /// It writes all of it.
    Out,
    /// It reads and writes it, as its documentation says.
    InOut,
}

/// One tensor of an operator.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its handle; its description must live until the launch.
    pub handle: Id,
    /// The tensor.
    pub tensor: Tensor,
    /// What happens to it.
    pub role: Role,
    /// Where it stands among the operator's tensors, those left out counted.
    pub place: usize,
}

/// The arguments of one first phase.
pub struct Arguments<'w> {
    objects: &'w Objects,
    settings: &'w Settings,
    operator: &'static str,
    operands: Vec<Operand>,
}

impl<'w> Arguments<'w> {
    /// Of an operator; handles are looked up in `objects`.
    pub fn new(objects: &'w Objects, settings: &'w Settings, operator: &'static str) -> Self {
        Self {
            objects,
            settings,
            operator,
            operands: Vec::new(),
        }
    }

    /// A tensor that must be given.
    pub fn tensor(&mut self, handle: Id, what: &str, role: Role) -> Result<Tensor, Fail> {
        let tensor = found(&self.objects.tensors, handle, what)?.clone();
        if tensor.data_type == ACL_BF16 && self.settings.is_310p() {
            return Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                format!("{what} is bf16, which this chip lacks"),
            ));
        }
        if tensor.elements() == 0 {
            return Err(not_offered("tensors without elements"));
        }
        self.operands.push(Operand {
            handle,
            tensor: tensor.clone(),
            role,
            place: self.operands.len(),
        });
        Ok(tensor)
    }

    /// The only tensor of a list.
    pub fn only_of(&mut self, list: Id, what: &str, role: Role) -> Result<Tensor, Fail> {
        let tensors = found(&self.objects.lists, list, what)?;
        match tensors.as_slice() {
            [one] => self.tensor(*one, what, role),
            many => Err(mistake(
                ACLNN_ERR_INNER_TILING_ERROR,
                format!("{what} has {} tensors; paging takes one", many.len()),
            )),
        }
    }

    /// Numbers that must be given.
    pub fn numbers(&self, handle: Id, what: &str) -> Result<Vec<i64>, Fail> {
        found(&self.objects.arrays, handle, what).cloned()
    }

    /// A number that must be given.
    pub fn scalar(&self, handle: Id, what: &str) -> Result<f64, Fail> {
        found(&self.objects.scalars, handle, what).copied()
    }

    /// An operator that only the larger chips have.
    pub fn not_on_310p(&self) -> Result<(), Fail> {
        match self.settings.is_310p() {
            true => Err(failure(
                ACLNN_ERR_INNER_FIND_KERNEL_ERROR,
                "this chip has no such operator",
            )),
            false => Ok(()),
        }
    }

    /// Says where the tensors stand among the operator's own, for operators of which some may be left out.
    pub fn place(&mut self, places: &[usize]) {
        for (operand, place) in self.operands.iter_mut().zip(places) {
            operand.place = *place;
        }
    }

    /// The prepared operator.
    pub fn executor(self, workspace: u64, compute: Compute) -> Executor {
        let bytes = |operand: &Operand| operand.tensor.bytes() as u64;
        let cost = Cost {
            bytes: self.operands.iter().map(bytes).sum(),
            ..Cost::default()
        };
        Executor {
            cost,
            operator: self.operator,
            operands: self.operands,
            workspace,
            holds_host_numbers: false,
            compute,
            device: 0,
            repeatable: false,
        }
    }
}

/// A way of the real operator that is not offered here.
pub fn not_offered(what: impl std::fmt::Display) -> Fail {
    failure(
        ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
        format!("the stand-in does not offer {what}"),
    )
}

/// The tensor's type is one of these.
pub fn typed(tensor: &Tensor, what: &str, types: &[aclDataType]) -> Result<(), Fail> {
    match types.contains(&tensor.data_type) {
        true => Ok(()),
        false => Err(mistake(
            ACLNN_ERR_PARAM_INVALID,
            format!(
                "{what} has type {}, not one of {types:?}",
                tensor.data_type.0
            ),
        )),
    }
}

/// The tensor has this shape.
pub fn shaped(tensor: &Tensor, what: &str, shape: &[usize]) -> Result<(), Fail> {
    match tensor.shape == shape {
        true => Ok(()),
        false => Err(mistake(
            ACLNN_ERR_PARAM_INVALID,
            format!("{what} is {:?}, not {shape:?}", tensor.shape),
        )),
    }
}

/// The tensor has so many dimensions.
pub fn ranked<const N: usize>(tensor: &Tensor, what: &str) -> Result<[usize; N], Fail> {
    tensor.shape.as_slice().try_into().map_err(|_| {
        mistake(
            ACLNN_ERR_PARAM_INVALID,
            format!("{what} is {:?}, not of {N} dimensions", tensor.shape),
        )
    })
}

/// The tensor lies in one piece.
pub fn contiguous(tensor: &Tensor, what: &str) -> Result<(), Fail> {
    match tensor.is_contiguous() {
        true => Ok(()),
        false => Err(mistake(
            ACLNN_ERR_PARAM_INVALID,
            format!("{what} is not contiguous"),
        )),
    }
}

/// A condition of the documentation.
pub fn required(holds: bool, code: i32, text: impl FnOnce() -> String) -> Result<(), Fail> {
    match holds {
        true => Ok(()),
        false => Err(mistake(code, text())),
    }
}
