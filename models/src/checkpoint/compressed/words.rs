//! Numbers packed into 32-bit words, the first in the lowest bits, each stored as itself plus half its range; and their way
//! into the blocks that devices take.

use half::f16;

/// Reads numbers of `BITS` bits along a row of words.
pub(super) struct Packed<'a> {
    words: &'a [[u8; 4]],
    bits: u32,
}

impl<'a> Packed<'a> {
    pub(super) fn new(bytes: &'a [u8], bits: u32) -> Self {
        Self {
            words: bytes.as_chunks().0,
            bits,
        }
    }

    /// The number at `index`, as stored: from 0 on.
    pub(super) fn get(&self, index: usize) -> u8 {
        let per_word = (32 / self.bits) as usize;
        let word = u32::from_le_bytes(self.words[index / per_word]);
        let shifted = word >> (self.bits * (index % per_word) as u32);
        (shifted & ((1 << self.bits) - 1)) as u8
    }
}

/// Numbers of a block.
pub(super) const BLOCK: usize = 32;

/// Appends a Q4_1 block (`scale * q + minimum`, q from 0 to 15) of 16 packed bytes, two numbers each in their natural order.
/// `zero` is the stored number that stands for 0. False when a factor does not fit into f16.
pub(super) fn push_q4_1(packed: &[u8; 16], scale: f32, zero: u8, out: &mut Vec<u8>) -> bool {
    let (scale, minimum) = (
        f16::from_f32(scale),
        f16::from_f32(-scale * f32::from(zero)),
    );
    out.extend(scale.to_le_bytes());
    out.extend(minimum.to_le_bytes());
    // The block keeps number i beside number i + 16.
    for byte in 0..16 {
        let number = |index: usize| packed[index / 2] >> (4 * (index % 2)) & 15;
        out.push(number(byte) | number(byte + 16) << 4);
    }
    scale.is_finite() && minimum.is_finite()
}

/// Appends a Q8_0 block (`scale * q`, q a signed byte) of 32 bytes, each stored as itself plus 128. False when the factor does not fit into f16.
pub(super) fn push_q8_0(packed: &[u8], scale: f32, out: &mut Vec<u8>) -> bool {
    let scale = f16::from_f32(scale);
    out.extend(scale.to_le_bytes());
    out.extend(packed.iter().map(|byte| byte ^ SIGN));
    scale.is_finite()
}

/// Turns a byte stored as itself plus 128 into a signed byte.
pub(super) const SIGN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_the_lowest_bits_on() {
        let bytes = 0x8765_4321u32.to_le_bytes();
        let packed = Packed::new(&bytes, 4);
        let numbers: Vec<u8> = (0..8).map(|index| packed.get(index)).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Packed::new(&bytes, 8).get(3), 0x87);
    }

    #[test]
    fn a_block_keeps_the_numbers_and_moves_the_zero_into_the_minimum() {
        let mut packed = [0; 16];
        packed[0] = 0x52;
        packed[8] = 0xf9;
        let mut block = Vec::new();
        assert!(push_q4_1(&packed, 0.5, 8, &mut block));
        assert_eq!(block[..2], f16::from_f32(0.5).to_le_bytes());
        assert_eq!(block[2..4], f16::from_f32(-4.0).to_le_bytes());
        assert_eq!(block[4..6], [0x92, 0xf5]);
        assert!(!push_q4_1(&packed, 1e5, 8, &mut block));
        let mut bytes = [0x80; 32];
        bytes[1] = 0x7f;
        block.clear();
        assert!(push_q8_0(&bytes, 2.0, &mut block));
        assert_eq!(block[2..4], [0, 0xff]);
    }
}
