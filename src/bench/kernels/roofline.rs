//! The machine's limits as measured, and the least time that a piece of work takes under them (the roofline model: Williams, Waterman and
//! Patterson 2009, https://doi.org/10.1145/1498765.1498785). Pure but for the measuring itself.

use super::clock::median;
use super::out_of_memory;
use crate::start_error::StartError;
use ropeteam_kernels::Machine;
use ropeteam_kernels::limits::{Arithmetic, Memory, Tile, multiply, read};
use serde::Serialize;

/// Larger than any cache.
const MEMORY_BYTES: usize = 256 << 20;

/// Memory to be read, to learn how fast that goes just now: what a virtual machine gets of its host's memory changes by the minute.
pub struct Reading(Memory);

impl Reading {
    /// Takes the memory.
    ///
    /// # Errors
    /// When there is none.
    pub fn new(machine: &mut Machine) -> Result<Self, StartError> {
        Memory::new(machine, MEMORY_BYTES)
            .map(Self)
            .map_err(out_of_memory)
    }

    /// Bytes read per second.
    pub fn rate(&self, machine: &mut Machine) -> f64 {
        self.0.bytes() as f64 / median(|| read(machine, &self.0))
    }
}

/// Limits of a machine with all threads in use.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    /// Bytes read from memory per second by one thread.
    pub one_thread_bytes_per_s: f64,
    /// Bytes read from memory per second.
    pub bytes_per_s: f64,
    /// Operations per second on f32.
    pub f32_per_s: f64,
    /// On pairs of bf16.
    pub bf16_per_s: f64,
    /// On bytes.
    pub int8_per_s: f64,
}

/// What a piece of work asks of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Bytes that come from memory at least, or go there.
    pub bytes: f64,
    /// Operations, two per product.
    pub operations: f64,
    /// What is multiplied.
    pub arithmetic: Arithmetic,
}

/// What bounds a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Reading and writing.
    Memory,
    /// Multiplying.
    Arithmetic,
}

impl Limits {
    /// Measures them.
    pub fn measure(machine: &mut Machine, reading: &Reading) -> Limits {
        let mut single = Machine::new(machine.isa(), 1);
        Limits {
            one_thread_bytes_per_s: reading.rate(&mut single),
            bytes_per_s: reading.rate(machine),
            f32_per_s: peak(machine, Arithmetic::F32),
            bf16_per_s: peak(machine, Arithmetic::Bf16),
            int8_per_s: peak(machine, Arithmetic::Int8),
        }
    }

    /// The higher of two measurements of each: a machine can do what it once did.
    pub fn max(self, other: Limits) -> Limits {
        Limits {
            one_thread_bytes_per_s: self
                .one_thread_bytes_per_s
                .max(other.one_thread_bytes_per_s),
            bytes_per_s: self.bytes_per_s.max(other.bytes_per_s),
            f32_per_s: self.f32_per_s.max(other.f32_per_s),
            bf16_per_s: self.bf16_per_s.max(other.bf16_per_s),
            int8_per_s: self.int8_per_s.max(other.int8_per_s),
        }
    }

    /// The least time that `work` takes where memory gives `bytes_per_s`, in seconds, and why.
    pub fn least_time(&self, work: Work, bytes_per_s: f64) -> (f64, Bound) {
        let operations_per_s = match work.arithmetic {
            Arithmetic::F32 => self.f32_per_s,
            Arithmetic::Bf16 => self.bf16_per_s,
            Arithmetic::Int8 => self.int8_per_s,
        };
        let (reading, multiplying) = (work.bytes / bytes_per_s, work.operations / operations_per_s);
        match reading >= multiplying {
            true => (reading, Bound::Memory),
            false => (multiplying, Bound::Arithmetic),
        }
    }
}

/// The best of all tiles.
fn peak(machine: &mut Machine, arithmetic: Arithmetic) -> f64 {
    let rate = |tile| {
        let mut operations = 0.0;
        let time = median(|| operations = multiply(machine, arithmetic, tile));
        operations / time
    };
    Tile::ALL.map(rate).into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_reading_and_multiplying_bounds() {
        let limits = Limits {
            one_thread_bytes_per_s: 5.0,
            bytes_per_s: 10.0,
            f32_per_s: 100.0,
            bf16_per_s: 200.0,
            int8_per_s: 400.0,
        };
        let work = |bytes, arithmetic| Work {
            bytes,
            operations: 400.0,
            arithmetic,
        };
        assert_eq!(
            limits.least_time(work(100.0, Arithmetic::F32), 10.0),
            (10.0, Bound::Memory)
        );
        assert_eq!(
            limits.least_time(work(10.0, Arithmetic::F32), 10.0),
            (4.0, Bound::Arithmetic)
        );
        assert_eq!(
            limits.least_time(work(5.0, Arithmetic::Int8), 10.0),
            (1.0, Bound::Arithmetic)
        );
    }
}
