//! The highest columns of a row: what is enough to draw from it where only so many of its best columns may be drawn.

use crate::ColumnMask;

/// Columns so near to the last of the highest, relatively, belong to them: whoever scales a row may round both to one value.
pub const TIED: f32 = 1e-6;

/// The `count` highest of the allowed columns of a row and those tied with the last of them, by column. Where fewer are above minus
/// infinity, or one is NaN, all columns, with minus infinity where none is allowed: then the row as a whole has to be looked at.
pub fn highest_columns(row: &[f32], count: usize, allowed: &ColumnMask) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(row.iter().copied()).collect();
    for (_, value) in &mut all[allowed.limit..] {
        *value = f32::NEG_INFINITY;
    }
    for hole in &allowed.holes {
        all[*hole as usize].1 = f32::NEG_INFINITY;
    }
    let mut values: Vec<f32> = all.iter().map(|(_, value)| *value).collect();
    if count == 0 || count > values.len() || values.iter().any(|value| value.is_nan()) {
        return all;
    }
    let (_, last, _) = values.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
    if *last == f32::NEG_INFINITY {
        return all;
    }
    let lowest = lowest_tied(*last);
    all.retain(|(_, value)| *value >= lowest);
    all
}

/// The lowest value that counts as tied with `last`.
pub fn lowest_tied(last: f32) -> f32 {
    match last.is_infinite() {
        true => last,
        false => last - last.abs() * TIED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_with_their_ties_or_all_of_them() {
        let infinity = f32::NEG_INFINITY;
        let mask = |limit, holes: &[u32]| ColumnMask {
            limit,
            holes: holes.to_vec(),
        };
        let row = [1.0, 5.0, 3.0, 5.0, 3.0, 9.0];
        let columns = |count, mask: &ColumnMask| highest_columns(&row, count, mask);
        assert_eq!(columns(1, &mask(6, &[])), [(5, 9.0)]);
        assert_eq!(columns(1, &mask(5, &[])), [(1, 5.0), (3, 5.0)]);
        assert_eq!(
            columns(2, &mask(5, &[1])),
            [(2, 3.0), (3, 5.0), (4, 3.0)],
            "a hole"
        );
        let few = columns(3, &mask(2, &[]));
        assert_eq!(few[..2], [(0, 1.0), (1, 5.0)]);
        assert!(few[2..].iter().all(|(_, value)| *value == infinity));
        let broken = highest_columns(&[1.0, f32::NAN], 1, &mask(2, &[]));
        assert_eq!(broken.len(), 2);
    }
}
