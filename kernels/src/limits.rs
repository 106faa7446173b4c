//! What the machine can do at most: a loop that only reads memory, and a loop that only multiplies numbers from the first-level cache.
//! A kernel's speed means something beside these. Not here: clocks and shares (`ropeteam bench kernels`).

// Loops over registers are written with indices, as in all register tiles: what takes closures loses the instruction set.
#![allow(clippy::needless_range_loop)]

mod operand;

use crate::Machine;
use crate::aligned::{AlignedLines, LANES, Line};
use crate::simd::{Int8, Kernel};
use crate::tile::{Bf16Element, SingleElement};
use operand::{Operand, Quads};
use std::hint::black_box;
use std::io;

/// Lines that a task reads (512 KiB).
const LINES_PER_TASK: usize = 8192;
/// Lines added up side by side, so that no sum waits for another.
const STREAMS: usize = 8;

/// Steps of a multiplying loop before it begins anew: with the most panels, 16 KiB of lines.
const STEPS: usize = 64;
/// Times that a task goes through them.
const ROUNDS: usize = 500;
/// Tasks per thread: a thread that comes late leaves its share to the others.
const TASKS: usize = 8;
/// Most rows and panels of the register tiles that are tried.
const ROWS: usize = 6;
const PANELS: usize = 4;

/// What a line to read or to multiply holds: in f32 0.0078, in bf16 2^-7 twice, in bytes 0, 60, 0, 60.
const LINE: Line = [0x3c00_3c00; LANES];

/// Memory to be read, larger than any cache if it is to tell the speed of the memory.
pub struct Memory {
    lines: AlignedLines,
}

impl Memory {
    /// So much of it, written once: a page never written to costs nothing to read.
    ///
    /// # Errors
    /// When the system gives no memory.
    pub fn new(machine: &mut Machine, bytes: usize) -> io::Result<Self> {
        let mut lines = AlignedLines::zeroed(bytes / size_of::<Line>())?;
        machine.for_rows(lines.lines_mut(), 1, |_, lines| lines.fill(LINE));
        Ok(Memory { lines })
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines.lines())
    }
}

/// Reads all of the memory once, on all threads.
pub fn read(machine: &mut Machine, memory: &Memory) {
    let (isa, lines) = (machine.isa, memory.lines.lines());
    machine
        .pool
        .run(lines.len().div_ceil(LINES_PER_TASK), &|task| {
            let first = task * LINES_PER_TASK;
            let end = lines.len().min(first + LINES_PER_TASK);
            black_box(isa.dispatch(Read(&lines[first..end])));
        });
}

struct Read<'a>(&'a [Line]);

impl Kernel for Read<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) -> f32 {
        let mut sums = [simd.splat(0.0); STREAMS];
        for lines in self.0.as_chunks::<STREAMS>().0 {
            for i in 0..STREAMS {
                sums[i] = simd.add(sums[i], simd.load_bits(&lines[i]));
            }
        }
        let mut total = sums[0];
        for sum in &sums[1..] {
            total = simd.add(total, *sum);
        }
        simd.sum(total)
    }
}

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// f32 by f32, summed in f32.
    F32,
    /// Pairs of bf16, summed in f32.
    Bf16,
    /// Quads of bytes, summed in i32.
    Int8,
}

impl Arithmetic {
    /// Products that a lane adds up at once.
    const fn products(self) -> usize {
        match self {
            Arithmetic::F32 => 1,
            Arithmetic::Bf16 => 2,
            Arithmetic::Int8 => 4,
        }
    }
}

/// A shape of the register tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tile {
    /// 6 rows by 4 panels of sixteen outputs: for 32 registers of 512 bits.
    SixByFour,
    /// 6 rows by 2 panels.
    SixByTwo,
    /// 4 rows by one panel: for 16 registers of 256 bits.
    FourByOne,
}

impl Tile {
    /// All of them; which one is fastest depends on the instruction set.
    pub const ALL: [Tile; 3] = [Tile::SixByFour, Tile::SixByTwo, Tile::FourByOne];

    /// Rows times panels.
    const fn size(self) -> usize {
        match self {
            Tile::SixByFour => 24,
            Tile::SixByTwo => 12,
            Tile::FourByOne => 4,
        }
    }
}

/// Multiplies on all threads, with operands from the first-level cache and sums in registers. Gives the operations done: two per product,
/// one to multiply and one to add.
pub fn multiply(machine: &mut Machine, arithmetic: Arithmetic, tile: Tile) -> f64 {
    let isa = machine.isa;
    let tasks = machine.threads() * TASKS;
    machine.pool.run(tasks, &|_| {
        black_box(match tile {
            Tile::SixByFour => isa.dispatch(Multiply::<6, 4>(arithmetic)),
            Tile::SixByTwo => isa.dispatch(Multiply::<6, 2>(arithmetic)),
            Tile::FourByOne => isa.dispatch(Multiply::<4, 1>(arithmetic)),
        });
    });
    let products = tile.size() * LANES * arithmetic.products();
    (2 * tasks * ROUNDS * STEPS * products) as f64
}

/// R rows times P panels; gives the sum of all sums, so that none of them is left out.
struct Multiply<const R: usize, const P: usize>(Arithmetic);

impl<const R: usize, const P: usize> Kernel for Multiply<R, P> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) -> f32 {
        match self.0 {
            Arithmetic::F32 => multiply_tile::<S, SingleElement, R, P>(simd),
            Arithmetic::Bf16 => multiply_tile::<S, Bf16Element, R, P>(simd),
            Arithmetic::Int8 => multiply_tile::<S, Quads, R, P>(simd),
        }
    }
}

#[inline(always)]
fn multiply_tile<S: Int8, O: Operand<S>, const R: usize, const P: usize>(simd: S) -> f32 {
    // The compiler is kept from knowing what is multiplied.
    let lines = black_box([[LINE; PANELS]; STEPS]);
    let inputs = black_box([[O::ones(simd); ROWS]; STEPS]);
    let mut sums = [[O::zero(simd); P]; R];
    for _ in 0..ROUNDS {
        for (line, x) in lines.iter().zip(&inputs) {
            let mut w = [O::line(simd, &line[0]); P];
            for p in 1..P {
                w[p] = O::line(simd, &line[p]);
            }
            for r in 0..R {
                let x = O::inputs(simd, &x[r]);
                for p in 0..P {
                    sums[r][p] = O::mul_add(simd, x, w[p], sums[r][p]);
                }
            }
        }
    }
    let mut total = simd.splat(0.0);
    for r in 0..R {
        for p in 0..P {
            total = simd.add(total, O::float(simd, sums[r][p]));
        }
    }
    simd.sum(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn the_loops_do_the_work_that_they_claim() {
        let lane = f32::from_bits(LINE[0]);
        let half = f32::from_bits(LINE[0] << 16);
        let steps = (ROUNDS * STEPS * Tile::SixByFour.size() * LANES) as f32;
        for isa in Isa::all() {
            for (arithmetic, product) in [
                (Arithmetic::F32, lane),
                (Arithmetic::Bf16, 2.0 * half),
                (Arithmetic::Int8, 120.0),
            ] {
                let found = isa.dispatch(Multiply::<6, 4>(arithmetic));
                let expected = steps * product;
                // Sums of so many f32 are rounded on the way.
                let close = (found / expected - 1.0).abs() < 1e-2;
                let name = isa.name();
                assert!(close, "{name}, {arithmetic:?}: {found}, not {expected}");
            }
            let found = isa.dispatch(Read(&[[1.0f32.to_bits(); LANES]; 24]));
            assert_eq!(found, 384.0, "{}", isa.name());
        }
    }

    #[test]
    fn operations_are_counted_over_all_threads() {
        let mut machine = Machine::new(Isa::best(), 2);
        let operations = multiply(&mut machine, Arithmetic::Int8, Tile::FourByOne);
        let products = ROUNDS * STEPS * 4 * LANES * 4;
        assert_eq!(operations, (2 * 2 * TASKS * products) as f64);
    }

    #[test]
    fn memory_has_the_size_that_was_asked_for() {
        let mut machine = Machine::new(Isa::best(), 2);
        let memory = Memory::new(&mut machine, 1 << 20).unwrap();
        assert_eq!(memory.bytes(), 1 << 20);
        read(&mut machine, &memory);
    }
}
