//! `x += y`.

use crate::Machine;

/// `x += y`, element by element.
///
/// # Panics
/// When the lengths differ.
pub fn add(machine: &mut Machine, x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "lengths of an addition");
    machine.for_rows(x, 1, |first, x| {
        for (x, y) in x.iter_mut().zip(&y[first..]) {
            *x += y;
        }
    });
}
