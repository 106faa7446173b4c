//! The gate of a feed-forward block: `silu(gate) * up`, `silu(v) = v / (1 + e^-v)`.

use crate::Machine;
use crate::aligned::LANES;
use crate::exp::exp;
use crate::simd::{Bf16, Kernel, Simd};

/// `out = silu(gate) * up`: rows of x are `[gate | up]`, rows of out are `cols` wide.
///
/// # Panics
/// When the lengths do not fit together.
pub fn silu_mul(machine: &mut Machine, x: &[f32], cols: usize, out: &mut [f32]) {
    assert_eq!(x.len(), 2 * out.len(), "gate and up for each output");
    let isa = machine.isa;
    machine.for_rows(out, cols, |first, out| {
        let x = &x[2 * first * cols..][..2 * out.len()];
        isa.dispatch(SiluMul { x, cols, out });
    });
}

struct SiluMul<'a> {
    x: &'a [f32],
    cols: usize,
    out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Bf16>(self, simd: S) {
        for (x, out) in self
            .x
            .chunks_exact(2 * self.cols)
            .zip(self.out.chunks_exact_mut(self.cols))
        {
            let (gate, up) = x.split_at(self.cols);
            let (gate, gate_rest) = gate.as_chunks::<LANES>();
            let (up, up_rest) = up.as_chunks::<LANES>();
            let (out, out_rest) = out.as_chunks_mut::<LANES>();
            for ((gate, up), out) in gate.iter().zip(up).zip(out) {
                simd.store(lanes(simd, simd.load(gate), simd.load(up)), out);
            }
            let (gate, up) = (
                simd.load_padded(gate_rest, 0.0),
                simd.load_padded(up_rest, 0.0),
            );
            simd.store_first(lanes(simd, gate, up), out_rest);
        }
    }
}

#[inline(always)]
fn lanes<S: Simd>(simd: S, gate: S::V, up: S::V) -> S::V {
    let one = simd.splat(1.0);
    let denominator = simd.add(one, exp(simd, simd.sub(simd.splat(0.0), gate)));
    simd.mul(simd.div(gate, denominator), up)
}
