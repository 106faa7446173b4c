//! Checks that the rows of a step fit the cache and each other. Kernels rely on them only to answer without a panic.

use super::{ensure, shape_error};
use crate::{AttentionShape, DeviceError, Rows};
use ropeteam_kernels::kv;

/// The attention is one over this cache.
pub(super) fn check_heads(
    op: &'static str,
    kv: &kv::Shape,
    shape: &AttentionShape,
    layer: usize,
) -> Result<(), DeviceError> {
    ensure(layer < kv.layers, op, || {
        format!("layer {layer} of {}", kv.layers)
    })?;
    ensure(
        (shape.kv_heads, shape.head_dim) == (kv.kv_heads, kv.head_dim),
        op,
        || {
            format!(
                "{shape:?} over a cache of {} heads of {}",
                kv.kv_heads, kv.head_dim
            )
        },
    )?;
    ensure(
        shape.heads > 0 && shape.heads.is_multiple_of(shape.kv_heads),
        op,
        || {
            format!(
                "{} query heads for {} KV heads",
                shape.heads, shape.kv_heads
            )
        },
    )?;
    ensure(shape.window != Some(0), op, || {
        "a window of nothing".to_owned()
    })
}

/// Segments cover the rows in order, and every row's slot is where its block table says.
pub(super) fn check_rows(op: &'static str, kv: &kv::Shape, rows: &Rows) -> Result<(), DeviceError> {
    let count = rows.positions.len();
    ensure(rows.slots.len() == count, op, || {
        format!("{} slots for {count} rows", rows.slots.len())
    })?;
    let mut next = 0;
    for segment in &rows.segments {
        let end = next + segment.rows;
        ensure(
            segment.first_row == next && segment.rows > 0 && end <= count,
            op,
            || {
                format!(
                    "{} rows from {} on, after {next} of {count}",
                    segment.rows, segment.first_row
                )
            },
        )?;
        let start = rows.positions[next];
        for (i, row) in (next..end).enumerate() {
            let position = rows.positions[row];
            ensure(
                u64::from(position) == u64::from(start) + i as u64,
                op,
                || format!("row {row} is at position {position}, its sequence started at {start}"),
            )?;
            let slot = slot(op, kv, &segment.blocks, position)?;
            ensure(slot == u64::from(rows.slots[row]), op, || {
                format!(
                    "row {row} has slot {}, its block table says {slot}",
                    rows.slots[row]
                )
            })?;
        }
        // Rows in between were checked; what lies before them is read as well.
        if let Some(block) = segment
            .blocks
            .iter()
            .find(|block| **block as usize >= kv.blocks)
        {
            return Err(shape_error(op, format!("block {block} of {}", kv.blocks)));
        }
        next = end;
    }
    ensure(next == count, op, || {
        format!("segments cover {next} of {count} rows")
    })
}

fn slot(
    op: &'static str,
    kv: &kv::Shape,
    blocks: &[u32],
    position: u32,
) -> Result<u64, DeviceError> {
    let position = position as usize;
    let block = blocks.get(position / kv.block_size).ok_or_else(|| {
        shape_error(
            op,
            format!(
                "{} blocks of {} for position {position}",
                blocks.len(),
                kv.block_size
            ),
        )
    })?;
    Ok(u64::from(*block) * kv.block_size as u64 + (position % kv.block_size) as u64)
}
