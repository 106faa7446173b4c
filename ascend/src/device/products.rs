//! Products and what stands round them: copies, sums, norms, gates, rows by index.

use super::AclDevice;
use super::weights::{Form, Held};
use crate::memory::{Address, pointer};
use crate::tensor::View;
use ropeteam_acl_sys::types::*;
use ropeteam_device::checks::shape_error;
use ropeteam_device::{Act, DeviceError, Ids, Weight};
use std::ptr::null;

/// Products keep the type of their operands.
const KEEP_TYPE: i8 = 0;

impl AclDevice {
    /// `out = x · weightᵀ + bias`.
    pub(super) fn product(
        &mut self,
        x: View,
        weight: Weight,
        out: View,
    ) -> Result<(), DeviceError> {
        let held = *self.weights.get("linear", weight)?;
        match held.form {
            Form::Floats => {}
            Form::Int8 { scale } => return self.product_in_int8(x, &held, scale, out),
            Form::Int4(grouped) => {
                return self.product_in_int4(x, (held.view, held.bias), grouped, out);
            }
        }
        launch!(
            self,
            aclnnMatmulGetWorkspaceSize,
            aclnnMatmul,
            [x, held.view.transposed(), out],
            [],
            |t| (t[0], t[1], t[2], KEEP_TYPE)
        )?;
        match held.bias {
            Some(bias) => self.add_in_place(out, bias),
            None => Ok(()),
        }
    }

    /// The same with a matrix of int8: rows are rounded to int8 with a factor each.
    fn product_in_int8(
        &mut self,
        x: View,
        held: &Held,
        scale: View,
        out: View,
    ) -> Result<(), DeviceError> {
        let [rows, inputs] = x.matrix();
        let [numbers, factors] = &mut self.scratch.rounded;
        numbers.reserve(&mut self.arena, "rounded rows", rows * inputs)?;
        factors.reserve(&mut self.arena, "rounded rows", rows * size_of::<f32>())?;
        let rounded = View::new(numbers.address, ACL_INT8, &[rows, inputs]);
        let factors = View::new(factors.address, ACL_FLOAT, &[rows]);
        launch!(
            self,
            aclnnDynamicQuantGetWorkspaceSize,
            aclnnDynamicQuant,
            [x, rounded, factors],
            [0, 2, 3],
            [],
            |t| (t[0], null(), t[1], t[2])
        )?;
        let mut tensors = vec![rounded, held.view, scale, factors, out];
        let mut places = vec![0, 1, 2, 4, 6];
        tensors.extend(held.bias);
        places.extend(held.bias.map(|_| 5));
        let given = |bias: Option<&*mut aclTensor>| bias.map_or(null(), |bias| bias.cast_const());
        launch!(
            self,
            aclnnQuantMatmulV4GetWorkspaceSize,
            aclnnQuantMatmulV4,
            tensors,
            places,
            [],
            |t| (
                t[0],
                t[1],
                t[2],
                null(),
                t[3],
                given(t.get(5)),
                false,
                true,
                t[4]
            )
        )
    }

    /// A copy inside the device, from a view to another of the same shape.
    pub(super) fn copy(&mut self, from: View, to: View) -> Result<(), DeviceError> {
        launch!(
            self,
            aclnnInplaceCopyGetWorkspaceSize,
            aclnnInplaceCopy,
            [to, from],
            [],
            |t| (t[0], t[1])
        )
    }

    /// `out = norm(x)` over the last dimension; `x` may have gaps.
    pub(super) fn norm(
        &mut self,
        x: View,
        gamma: View,
        eps: f32,
        rstd: &[usize],
        out: View,
    ) -> Result<(), DeviceError> {
        let bytes = rstd.iter().product::<usize>() * size_of::<f32>();
        self.scratch.rstd.reserve(&mut self.arena, "norms", bytes)?;
        let rstd = View::new(self.scratch.rstd.address, ACL_FLOAT, rstd);
        launch!(
            self,
            aclnnRmsNormGetWorkspaceSize,
            aclnnRmsNorm,
            [x, gamma, out, rstd],
            [eps.to_bits().into()],
            |t| (t[0], t[1], eps.into(), t[2], t[3])
        )
    }

    /// `x += y`, where y has x's last dimensions.
    pub(super) fn add_in_place(&mut self, x: View, y: View) -> Result<(), DeviceError> {
        let one = self.one.handle();
        launch!(
            self,
            aclnnInplaceAddGetWorkspaceSize,
            aclnnInplaceAdd,
            [x, y],
            [],
            |t| (t[0], t[1], one)
        )
    }

    /// `residual += x`, then `x = norm(residual)`.
    pub(super) fn add_norm_in_place(
        &mut self,
        x: View,
        residual: View,
        gamma: View,
        eps: f32,
        rows: usize,
    ) -> Result<(), DeviceError> {
        self.scratch
            .rstd
            .reserve(&mut self.arena, "norms", rows * size_of::<f32>())?;
        let rstd = View::new(self.scratch.rstd.address, ACL_FLOAT, &[rows, 1]);
        launch!(
            self,
            aclnnInplaceAddRmsNormGetWorkspaceSize,
            aclnnInplaceAddRmsNorm,
            [x, residual, gamma, rstd],
            [eps.to_bits().into()],
            |t| (t[0], t[1], t[2], eps.into(), t[3])
        )
    }

    /// `out = silu(gate) * up`: x rows are `[gate | up]`.
    pub(super) fn gate(&mut self, x: View, out: View) -> Result<(), DeviceError> {
        launch!(
            self,
            aclnnSwiGluGetWorkspaceSize,
            aclnnSwiGlu,
            [x, out],
            [],
            |t| (t[0], -1, t[1])
        )
    }

    /// Rows of `x` by index.
    pub(super) fn select(&mut self, x: View, rows: &[u32], out: View) -> Result<(), DeviceError> {
        let index = self.send_indices(rows)?;
        let index = View::new(index, ACL_INT32, &[rows.len()]);
        launch!(
            self,
            aclnnIndexSelectGetWorkspaceSize,
            aclnnIndexSelect,
            [x, index, out],
            [],
            |t| (t[0], 0, t[1], t[2])
        )
    }

    /// See `Device::embed`.
    pub(super) fn embed_rows(
        &mut self,
        table: Weight,
        ids: &[u32],
        out: Act,
    ) -> Result<(), DeviceError> {
        let op = "embed";
        let (table, [vocab, dim]) = self.weights.table(op, table)?;
        let float = self.float();
        let out = self.buffers.rows(op, float, out, ids.len(), dim)?;
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
            return Err(shape_error(
                op,
                format!("id {id} in a table of {vocab} rows"),
            ));
        }
        self.place_ids(&Ids::Given(ids))?;
        let index = View::new(self.inputs.ids.address, ACL_INT32, &[ids.len()]);
        self.look_up(table, index, out)
    }

    /// See `Device::embed_found`.
    pub(super) fn embed_found_rows(
        &mut self,
        table: Weight,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        let op = "embed_found";
        let (table, [_, dim]) = self.weights.table(op, table)?;
        let float = self.float();
        let out = self.buffers.rows(op, float, out, rows, dim)?;
        self.place_ids(&Ids::Found(rows))?;
        let index = View::new(self.inputs.ids.address, ACL_INT32, &[rows]);
        self.look_up(table, index, out)
    }

    /// Puts a step's ids where its first operator looks for them, unless they are there.
    pub(super) fn place_ids(&mut self, ids: &Ids<'_>) -> Result<(), DeviceError> {
        if self.graphs.has_ids() {
            return Ok(());
        }
        let bytes = ids.count() * size_of::<u32>();
        let moved = self.inputs.ids.reserve(&mut self.arena, "ids", bytes)?;
        if moved {
            self.forget_graphs()?;
        }
        let to = self.inputs.ids.address;
        match ids {
            Ids::Given(ids) => {
                let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                self.outbox.send(&bytes, to)?;
            }
            Ids::Found(_) => {
                let from = self.scratch.best[1].address;
                let session = &self.session;
                let copied = call!(
                    session.acl,
                    runtime.aclrtMemcpyAsync(
                        pointer(to),
                        bytes,
                        pointer(from),
                        bytes,
                        ACL_MEMCPY_DEVICE_TO_DEVICE,
                        session.compute
                    )
                );
                session.noted(copied)?;
            }
        }
        Ok(())
    }

    /// Rows of a table, by indices on the device.
    fn look_up(&mut self, table: View, index: View, out: View) -> Result<(), DeviceError> {
        launch!(
            self,
            aclnnEmbeddingGetWorkspaceSize,
            aclnnEmbedding,
            [table, index, out],
            [],
            |t| (t[0], t[1], t[2])
        )
    }

    /// Indices on the device, in the one place for them: those before were used by what is queued already.
    fn send_indices(&mut self, indices: &[u32]) -> Result<Address, DeviceError> {
        let bytes: Vec<u8> = indices.iter().flat_map(|id| id.to_le_bytes()).collect();
        let place = &mut self.inputs.indices;
        place.reserve(&mut self.arena, "indices", bytes.len())?;
        let address = place.address;
        self.outbox.send(&bytes, address)?;
        Ok(address)
    }
}
