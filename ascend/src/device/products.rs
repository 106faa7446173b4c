//! Products and what stands round them: sums, norms in place, gates, rows by index.

use super::AclDevice;
use super::weights::{Form, Held};
use crate::launch::Launch;
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
        let acl = self.session.acl;
        let held = *self.weights.get("linear", weight)?;
        match held.form {
            Form::Floats => {}
            Form::Int8 { scale } => return self.product_in_int8(x, &held, scale, out),
            Form::Int4(grouped) => {
                return self.product_in_int4(x, (held.view, held.bias), grouped, out);
            }
        }
        let launch = Launch {
            operator: operator!(aclnnMatmul),
            tensors: &[x, held.view.transposed(), out],
            places: &[],
            numbers: &[],
        };
        self.launcher.launch(&launch, |t, made| {
            // SAFETY: tensors that live as long as the executor.
            unsafe {
                acl.operators.aclnnMatmulGetWorkspaceSize(
                    t[0],
                    t[1],
                    t[2],
                    KEEP_TYPE,
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })?;
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
        let acl = self.session.acl;
        let [rows, inputs] = x.matrix();
        let [numbers, factors] = &mut self.scratch.rounded;
        numbers.reserve(&mut self.arena, "rounded rows", rows * inputs)?;
        factors.reserve(&mut self.arena, "rounded rows", rows * size_of::<f32>())?;
        let rounded = View::new(numbers.address, ACL_INT8, &[rows, inputs]);
        let factors = View::new(factors.address, ACL_FLOAT, &[rows]);
        let launch = Launch {
            operator: operator!(aclnnDynamicQuant),
            tensors: &[x, rounded, factors],
            places: &[0, 2, 3],
            numbers: &[],
        };
        self.launcher.launch(&launch, |t, made| {
            // SAFETY: tensors that live as long as the executor; no smoothing.
            unsafe {
                acl.operators.aclnnDynamicQuantGetWorkspaceSize(
                    t[0],
                    null(),
                    t[1],
                    t[2],
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })?;
        let mut tensors = vec![rounded, held.view, scale, factors, out];
        let mut places = vec![0, 1, 2, 4, 6];
        tensors.extend(held.bias);
        places.extend(held.bias.map(|_| 5));
        let launch = Launch {
            operator: operator!(aclnnQuantMatmulV4),
            tensors: &tensors,
            places: &places,
            numbers: &[],
        };
        self.launcher.launch(&launch, |t, made| {
            let bias = t.get(5).map_or(null(), |bias| bias.cast_const());
            // SAFETY: as above; no offset.
            unsafe {
                acl.operators.aclnnQuantMatmulV4GetWorkspaceSize(
                    t[0],
                    t[1],
                    t[2],
                    null(),
                    t[3],
                    bias,
                    false,
                    true,
                    t[4],
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })
    }

    /// `x += y`, where y has x's last dimensions.
    pub(super) fn add_in_place(&mut self, x: View, y: View) -> Result<(), DeviceError> {
        let (acl, one) = (self.session.acl, self.one.handle());
        let launch = Launch {
            operator: operator!(aclnnInplaceAdd),
            tensors: &[x, y],
            places: &[],
            numbers: &[],
        };
        self.launcher.launch(&launch, |t, made| {
            // SAFETY: as above; the factor lives as long as the device.
            unsafe {
                acl.operators.aclnnInplaceAddGetWorkspaceSize(
                    t[0],
                    t[1],
                    one,
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })
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
        let acl = self.session.acl;
        self.scratch
            .rstd
            .reserve(&mut self.arena, "norms", rows * size_of::<f32>())?;
        let rstd = View::new(self.scratch.rstd.address, ACL_FLOAT, &[rows, 1]);
        let launch = Launch {
            operator: operator!(aclnnInplaceAddRmsNorm),
            tensors: &[x, residual, gamma, rstd],
            places: &[],
            numbers: &[eps.to_bits().into()],
        };
        self.launcher.launch(&launch, |t, made| {
            // SAFETY: as above.
            unsafe {
                acl.operators.aclnnInplaceAddRmsNormGetWorkspaceSize(
                    t[0],
                    t[1],
                    t[2],
                    eps.into(),
                    t[3],
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })
    }

    /// `out = silu(gate) * up`: x rows are `[gate | up]`.
    pub(super) fn gate(&mut self, x: View, out: View) -> Result<(), DeviceError> {
        let acl = self.session.acl;
        let launch = Launch {
            operator: operator!(aclnnSwiGlu),
            tensors: &[x, out],
            places: &[],
            numbers: &[],
        };
        self.launcher.launch(&launch, |t, made| {
            // SAFETY: as above.
            unsafe {
                acl.operators.aclnnSwiGluGetWorkspaceSize(
                    t[0],
                    -1,
                    t[1],
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })
    }

    /// Rows of `x` by index.
    pub(super) fn select(&mut self, x: View, rows: &[u32], out: View) -> Result<(), DeviceError> {
        let acl = self.session.acl;
        let index = self.send_indices(rows)?;
        let index = View::new(index, ACL_INT32, &[rows.len()]);
        let launch = Launch {
            operator: operator!(aclnnIndexSelect),
            tensors: &[x, index, out],
            places: &[],
            numbers: &[],
        };
        self.launcher.launch(&launch, |t, made| {
            // SAFETY: as above.
            unsafe {
                acl.operators.aclnnIndexSelectGetWorkspaceSize(
                    t[0],
                    0,
                    t[1],
                    t[2],
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })
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
        let acl = self.session.acl;
        let launch = Launch {
            operator: operator!(aclnnEmbedding),
            tensors: &[table, index, out],
            places: &[],
            numbers: &[],
        };
        self.launcher.launch(&launch, |t, made| {
            // SAFETY: as above.
            unsafe {
                acl.operators.aclnnEmbeddingGetWorkspaceSize(
                    t[0],
                    t[1],
                    t[2],
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })
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
