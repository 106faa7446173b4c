//! What every device checks of a call before it computes: a `Shape` error names the operator and what does not fit.

use crate::{AttentionShape, DeviceError, Dtype, KvShape, Rows, TensorView};

/// A `Shape` error of operator `op`.
pub fn shape_error(op: &'static str, detail: String) -> DeviceError {
    DeviceError::Shape { op, detail }
}

/// A `Shape` error unless `holds`.
///
/// # Errors
/// That one.
pub fn ensure(
    holds: bool,
    op: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), DeviceError> {
    if holds {
        Ok(())
    } else {
        Err(shape_error(op, detail()))
    }
}

/// Sizes of a cache: none is zero, and a slot's number has 32 bits.
///
/// # Errors
/// Which does not hold.
pub fn check_cache(shape: &KvShape) -> Result<(), DeviceError> {
    let sizes = [
        shape.layers,
        shape.blocks,
        shape.block_size,
        shape.kv_heads,
        shape.head_dim,
    ];
    ensure(!sizes.contains(&0), "alloc_kv", || {
        format!("a size of {shape:?} is zero")
    })?;
    let slots = shape
        .blocks
        .checked_mul(shape.block_size)
        .and_then(|n| u32::try_from(n).ok());
    ensure(slots.is_some(), "alloc_kv", || {
        format!("slots of {shape:?} exceed 32 bits")
    })
}

/// A matrix or vector as a file holds it: bytes and factors are as many as its shape says, and its row order stays inside.
///
/// # Errors
/// What does not fit.
pub fn check_view(op: &'static str, view: &TensorView<'_>) -> Result<(), DeviceError> {
    let [rows, cols] = view.shape;
    let expected = view
        .dtype
        .row_bytes(cols)
        .and_then(|width| width.checked_mul(rows));
    ensure(expected == Some(view.bytes.len()), op, || {
        format!(
            "{} bytes for {:?} [{rows}, {cols}]",
            view.bytes.len(),
            view.dtype
        )
    })?;
    let scales = view.scales.map(<[f32]>::len);
    ensure(
        scales == (view.dtype == Dtype::I8).then_some(rows),
        op,
        || format!("{scales:?} scales for {rows} rows of {:?}", view.dtype),
    )?;
    let Some(order) = view.row_order else {
        return Ok(());
    };
    ensure(order.len() == rows, op, || {
        format!("an order of {} rows for {rows}", order.len())
    })?;
    match order.iter().find(|row| **row as usize >= rows) {
        Some(row) => Err(shape_error(
            op,
            format!("row {row} in the order of {rows} rows"),
        )),
        None => Ok(()),
    }
}

/// The parts of a matrix and its bias: inputs and outputs.
///
/// # Errors
/// What does not fit.
pub fn check_parts(
    op: &'static str,
    parts: &[TensorView<'_>],
) -> Result<(usize, usize), DeviceError> {
    let inputs = parts.first().map_or(0, |part| part.shape[1]);
    let outputs: usize = parts.iter().map(|part| part.shape[0]).sum();
    ensure(inputs > 0 && outputs > 0, op, || {
        format!("a matrix [{outputs}, {inputs}]")
    })?;
    for part in parts {
        ensure(part.shape[1] == inputs, op, || {
            format!("a part of {} columns beside one of {inputs}", part.shape[1])
        })?;
        check_view(op, part)?;
    }
    Ok((inputs, outputs))
}

/// The attention is one over this cache.
///
/// # Errors
/// What does not fit.
pub fn check_heads(
    op: &'static str,
    kv: &KvShape,
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
///
/// # Errors
/// What does not fit.
pub fn check_rows(op: &'static str, kv: &KvShape, rows: &Rows) -> Result<(), DeviceError> {
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

fn slot(op: &'static str, kv: &KvShape, blocks: &[u32], position: u32) -> Result<u64, DeviceError> {
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
