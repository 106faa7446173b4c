//! Packing stored weights into panels (see `matrix`): once, at load, on all threads, straight from the checkpoint's bytes.

use crate::aligned::{LANES, Line};
use crate::dequant::dequant_row;
use crate::disjoint::Disjoint;
use crate::{Dtype, Format, Machine, Source};
use half::bf16;

/// Panels packed by one task: enough to be worth a claim, few enough to share out evenly.
const PANELS_PER_TASK: usize = 4;

/// Packs `parts`, stacked along the outputs, into zeroed lines.
pub(crate) fn pack(
    machine: &mut Machine,
    format: Format,
    inputs: usize,
    parts: &[Source<'_>],
    lines: &mut [Line],
) {
    let outputs: usize = parts.iter().map(|part| part.rows).sum();
    let panels = outputs.div_ceil(LANES);
    let steps = inputs.div_ceil(format.inputs_per_line());
    let lines = Disjoint::new(lines);
    machine.pool.run(panels.div_ceil(PANELS_PER_TASK), &|task| {
        let mut row = vec![0.0; inputs];
        let first = task * PANELS_PER_TASK;
        for panel in first..panels.min(first + PANELS_PER_TASK) {
            // SAFETY: each panel belongs to one task.
            let panel_lines = unsafe { lines.part(panel * steps, steps) };
            for lane in 0..LANES.min(outputs - panel * LANES) {
                let stored = stored_row(parts, inputs, panel * LANES + lane);
                pack_lane(format, stored, &mut row, panel_lines, lane);
            }
        }
    });
}

/// One stored row.
#[derive(Clone, Copy)]
struct StoredRow<'a> {
    dtype: Dtype,
    bytes: &'a [u8],
    /// Factor on all its numbers.
    scale: f32,
}

impl StoredRow<'_> {
    fn read(&self, row: &mut [f32]) {
        dequant_row(self.dtype, self.bytes, row);
        if self.dtype == Dtype::I8 {
            row.iter_mut().for_each(|x| *x *= self.scale);
        }
    }
}

/// Output `output` of the stacked parts.
fn stored_row<'a>(parts: &[Source<'a>], inputs: usize, output: usize) -> StoredRow<'a> {
    let mut row = output;
    for part in parts {
        if row < part.rows {
            let stored = part.row_order.map_or(row, |order| order[row] as usize);
            let width = part
                .dtype
                .row_bytes(inputs)
                .expect("invariant: rows of whole blocks");
            return StoredRow {
                dtype: part.dtype,
                bytes: &part.bytes[stored * width..][..width],
                scale: part.scales.map_or(1.0, |scales| scales[stored]),
            };
        }
        row -= part.rows;
    }
    unreachable!("invariant: outputs are counted over the parts")
}

/// Writes one stored row into lane `lane` of a panel. `row` is scratch.
fn pack_lane(
    format: Format,
    stored: StoredRow<'_>,
    row: &mut [f32],
    panel: &mut [Line],
    lane: usize,
) {
    if format == Format::Bf16 && stored.dtype == Dtype::BF16 {
        let (pairs, last) = stored.bytes.as_chunks::<4>();
        for (line, pair) in panel.iter_mut().zip(pairs) {
            line[lane] = u32::from_le_bytes(*pair);
        }
        if let [low, high] = *last {
            panel[pairs.len()][lane] = u32::from(u16::from_le_bytes([low, high]));
        }
        return;
    }
    stored.read(row);
    match format {
        Format::F32 => {
            for (line, x) in panel.iter_mut().zip(row) {
                line[lane] = x.to_bits();
            }
        }
        Format::Bf16 => {
            for (line, pair) in panel.iter_mut().zip(row.chunks(2)) {
                line[lane] = pack_pair(pair[0], pair.get(1).copied().unwrap_or(0.0));
            }
        }
    }
}

/// Two numbers rounded to bf16 (to nearest, ties to even), the first in the low half.
#[inline(always)]
pub(crate) fn pack_pair(first: f32, second: f32) -> u32 {
    u32::from(bf16::from_f32(first).to_bits()) | u32::from(bf16::from_f32(second).to_bits()) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, MatrixStore};

    fn check(format: Format, rows: [usize; 2], inputs: usize) {
        let value = |r: usize, c: usize| (r * inputs + c) as f32 % 128.0 - 64.0;
        let bytes_of = |first: usize, rows: usize| -> Vec<u8> {
            (0..rows * inputs)
                .flat_map(|i| value(first + i / inputs, i % inputs).to_le_bytes())
                .collect()
        };
        let (a, b) = (bytes_of(0, rows[0]), bytes_of(rows[0], rows[1]));
        let reversed: Vec<u32> = (0..rows[1] as u32).rev().collect();
        let parts = [
            Source {
                dtype: Dtype::F32,
                rows: rows[0],
                bytes: &a,
                row_order: None,
                scales: None,
            },
            Source {
                dtype: Dtype::F32,
                rows: rows[1],
                bytes: &b,
                row_order: Some(&reversed),
                scales: None,
            },
        ];
        let mut machine = Machine::new(Isa::best(), 2);
        let mut store = MatrixStore::default();
        let id = store
            .pack(&mut machine, format, inputs, &parts, &[])
            .unwrap();
        let packed = store.get(id);
        let mut row = vec![0.0; inputs];
        for r in 0..rows[0] + rows[1] {
            let stored = if r < rows[0] {
                r
            } else {
                rows[0] + rows[1] - 1 - (r - rows[0])
            };
            packed.read_row(r, &mut row);
            let expected: Vec<f32> = (0..inputs).map(|c| value(stored, c)).collect();
            assert_eq!(row, expected, "{format:?} row {r}");
        }
    }

    #[test]
    fn rows_come_back_as_they_were_stacked() {
        for format in [Format::F32, Format::Bf16] {
            for inputs in [1, 2, 7, 64] {
                check(format, [3, 2], inputs);
                check(format, [16, 49], inputs);
            }
        }
    }

    #[test]
    fn bf16_rows_of_odd_length_keep_their_last_element() {
        let bytes: Vec<u8> = [1.5f32, -2.0, 3.0]
            .iter()
            .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
            .collect();
        let part = Source {
            dtype: Dtype::BF16,
            rows: 1,
            bytes: &bytes,
            row_order: None,
            scales: None,
        };
        let mut store = MatrixStore::default();
        let machine = &mut Machine::new(Isa::best(), 1);
        let id = store.pack(machine, Format::Bf16, 3, &[part], &[]).unwrap();
        let packed = store.get(id);
        let mut row = [0.0; 3];
        packed.read_row(0, &mut row);
        assert_eq!(row, [1.5, -2.0, 3.0]);
    }
}
