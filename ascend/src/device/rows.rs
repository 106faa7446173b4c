//! The rows of a step on the device: positions, slots and block tables, and the host's numbers that attention takes. They are the
//! same for all layers, so they are sent once.

use super::AclDevice;
use crate::memory::Growing;
use crate::tensor::{IntArray, View};
use ropeteam_acl_sys::types::*;
use ropeteam_device::checks::check_rows;
use ropeteam_device::{DeviceError, KvShape, Rows};

/// Where the numbers of a step go.
#[derive(Default)]
pub struct StepInputs {
    /// Ids of the tokens.
    pub ids: Growing,
    /// Indices of rows.
    pub indices: Growing,
    positions: Growing,
    slots: Growing,
    table: Growing,
    /// What is there now.
    sent: Option<Sent>,
}

/// Rows that are on the device.
struct Sent {
    rows: Rows,
    on_device: StepViews,
}

/// Tensors of the rows, and attention's numbers.
pub struct StepViews {
    /// `[rows]`, i64.
    pub positions: View,
    /// `[rows]`, i32.
    pub slots: View,
    /// `[sequences, blocks of the longest]`, i32.
    pub block_table: View,
    /// End of each sequence's rows.
    pub query_ends: IntArray,
    /// Tokens of each sequence.
    pub kv_lens: IntArray,
    /// Every sequence has one row.
    pub is_decode: bool,
}

impl StepInputs {
    /// What was sent last.
    pub fn views(&self) -> Option<&StepViews> {
        self.sent.as_ref().map(|sent| &sent.on_device)
    }
}

impl AclDevice {
    /// Checks rows and sends them, unless they are there already.
    pub(super) fn send_rows(
        &mut self,
        op: &'static str,
        cache: &KvShape,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        if self
            .inputs
            .sent
            .as_ref()
            .is_some_and(|sent| sent.rows == *rows)
        {
            return Ok(());
        }
        check_rows(op, cache, rows)?;
        let acl = self.session.acl;
        let count = rows.positions.len();
        let positions: Vec<u8> = rows
            .positions
            .iter()
            .flat_map(|position| i64::from(*position).to_le_bytes())
            .collect();
        let slots: Vec<u8> = rows
            .slots
            .iter()
            .flat_map(|slot| slot.to_le_bytes())
            .collect();
        let ends: Vec<i64> = rows
            .segments
            .iter()
            .map(|segment| (segment.first_row + segment.rows) as i64)
            .collect();
        let lens: Vec<i64> = ends
            .iter()
            .map(|end| i64::from(rows.positions[*end as usize - 1]) + 1)
            .collect();
        let longest = lens.iter().copied().max().unwrap_or(0) as usize;
        let width = longest.div_ceil(cache.block_size).max(1);
        let mut table = Vec::with_capacity(rows.segments.len() * width * 4);
        for segment in &rows.segments {
            // Entries beyond a sequence's blocks are not read.
            let blocks = segment.blocks.iter().copied().chain(std::iter::repeat(0));
            table.extend(blocks.take(width).flat_map(u32::to_le_bytes));
        }
        let inputs = &mut self.inputs;
        inputs.sent = None;
        let places = [
            (&mut inputs.positions, &positions),
            (&mut inputs.slots, &slots),
            (&mut inputs.table, &table),
        ];
        let mut moved = false;
        for (place, bytes) in places {
            moved |= place.reserve(&mut self.arena, "rows of a step", bytes.len())?;
            self.outbox.send(bytes, place.address)?;
        }
        let sequences = rows.segments.len();
        let on_device = StepViews {
            positions: View::new(inputs.positions.address, ACL_INT64, &[count]),
            slots: View::new(inputs.slots.address, ACL_INT32, &[count]),
            block_table: View::new(inputs.table.address, ACL_INT32, &[sequences, width]),
            query_ends: IntArray::new(acl, &ends)?,
            kv_lens: IntArray::new(acl, &lens)?,
            is_decode: rows.segments.iter().all(|segment| segment.rows == 1),
        };
        inputs.sent = Some(Sent {
            rows: rows.clone(),
            on_device,
        });
        if moved {
            self.forget_graphs()?;
        }
        Ok(())
    }
}
