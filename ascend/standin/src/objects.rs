//! What operators take from the host: tensors, numbers, arrays and lists, each with a handle that dies with it.

use crate::fail::{Fail, mistake};
use crate::task::Id;
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::*;
use std::collections::BTreeMap;

/// All of them by handle.
#[derive(Default)]
pub struct Objects {
    /// Tensors.
    pub tensors: BTreeMap<Id, Tensor>,
    /// Numbers.
    pub scalars: BTreeMap<Id, f64>,
    /// Integers on the host.
    pub arrays: BTreeMap<Id, Vec<i64>>,
    /// Lists of tensors, which they own.
    pub lists: BTreeMap<Id, Vec<Id>>,
}

impl Objects {
    /// How many are alive, by kind.
    pub fn alive(&self) -> [(&'static str, usize); 4] {
        [
            ("tensors", self.tensors.len()),
            ("scalars", self.scalars.len()),
            ("arrays", self.arrays.len()),
            ("tensor lists", self.lists.len()),
        ]
    }

    /// `aclCreateTensorList`: the tensors belong to the list from now on.
    pub fn list(&mut self, id: Id, tensors: Vec<Id>) -> Result<(), Fail> {
        for tensor in &tensors {
            found(&self.tensors, *tensor, "a tensor of the list")?;
        }
        self.lists.insert(id, tensors);
        Ok(())
    }

    /// `aclDestroyTensorList`, with the tensors in it.
    pub fn end_list(&mut self, id: Id) -> Result<(), Fail> {
        let tensors = end(&mut self.lists, id, "tensor list")?;
        for tensor in tensors.unwrap_or_default() {
            end(&mut self.tensors, tensor, "tensor")?;
        }
        Ok(())
    }

    /// `aclDestroyTensor`.
    pub fn end_tensor(&mut self, id: Id) -> Result<(), Fail> {
        if self.lists.values().any(|list| list.contains(&id)) {
            return Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                "the tensor belongs to a list",
            ));
        }
        end(&mut self.tensors, id, "tensor").map(drop)
    }
}

/// An object by handle that must be there.
pub fn found<'m, T>(map: &'m BTreeMap<Id, T>, id: Id, what: &str) -> Result<&'m T, Fail> {
    if id == 0 {
        return Err(mistake(
            ACLNN_ERR_PARAM_NULLPTR,
            format!("no {what} is given"),
        ));
    }
    map.get(&id).ok_or_else(|| {
        mistake(
            ACLNN_ERR_PARAM_INVALID,
            format!("{id:#x}, given as {what}, is none (any more)"),
        )
    })
}

/// Removes an object; null is nothing to remove.
pub fn end<T>(map: &mut BTreeMap<Id, T>, id: Id, what: &str) -> Result<Option<T>, Fail> {
    if id == 0 {
        return Ok(None);
    }
    match map.remove(&id) {
        Some(object) => Ok(Some(object)),
        None => Err(mistake(
            ACLNN_ERR_PARAM_INVALID,
            format!("{id:#x} is no {what} (any more)"),
        )),
    }
}
