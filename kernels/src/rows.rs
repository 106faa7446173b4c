//! Input rows as the register tiles read them. An operator whose result is multiplied next may write it here itself, row by row.
//!
//! In int8 a row is cut into chunks of 64 inputs (the last one filled up with zeros), each with a scale of its own. A chunk is a
//! few words that kernels need beside the products (see `Chunk`), then its inputs as quads.

use crate::product::Rows;
use crate::simd::{Bf16, Int8, Kernel, Simd};
use crate::tile::{Bf16Element, Element, SingleElement};
use crate::{Machine, RowForm, aligned::LANES};

/// Inputs of an int8 chunk. On SmolLM2 chunks of 128 cost 0.005 (int8) and 0.008 (int4) nll more.
pub(crate) const CHUNK: usize = 64;
/// Words before the quads of a chunk.
const HEAD_WORDS: usize = 11;
/// Chunks whose numbers are all smaller count as zeros. Kernels go from one chunk's scale to the next one's by a quotient of the two,
/// which must stay finite.
const SMALLEST: f32 = 1e-20;

/// Prepared rows; a buffer that is kept from call to call.
#[derive(Default)]
pub struct PreparedRows {
    words: Vec<u32>,
    row_words: usize,
    rows: usize,
    cols: usize,
    form: Option<RowForm>,
}

/// Rows that an operator prepares itself.
pub(crate) struct ToPrepare {
    pub form: RowForm,
    pub rows: usize,
    /// Numbers of a row.
    pub cols: usize,
    /// What a row costs, as so many numbers that are only rounded.
    pub cost: usize,
}

impl PreparedRows {
    /// Prepares the rows of `x`, each `cols` wide.
    pub fn fill(&mut self, machine: &mut Machine, form: RowForm, x: &[f32], cols: usize) {
        let isa = machine.isa;
        let rows = x.len().checked_div(cols).unwrap_or(0);
        let shape = ToPrepare {
            form,
            rows,
            cols,
            cost: cols,
        };
        self.fill_by(machine, shape, |first, words, row_words| {
            let x = &x[first * cols..][..words.len() / row_words * cols];
            isa.dispatch(Prepare {
                form,
                x,
                cols,
                words,
                row_words,
            });
        });
    }

    /// Has rows prepared by `work(first_row, words, row_words)`, which gets whole rows and fills each as `prepare_row` does.
    pub(crate) fn fill_by(
        &mut self,
        machine: &mut Machine,
        shape: ToPrepare,
        work: impl Fn(usize, &mut [u32], usize) + Sync,
    ) {
        let row_words = self.begin(machine, shape.form, shape.rows, shape.cols);
        let words = &mut self.words[..shape.rows * row_words];
        machine.for_costly_rows(words, row_words, shape.cost, |first, words| {
            work(first, words, row_words);
        });
    }

    /// Makes room for rows; returns the words of a row.
    fn begin(&mut self, machine: &Machine, form: RowForm, rows: usize, cols: usize) -> usize {
        let row_words = machine.isa.dispatch(RowWords { form, cols });
        if self.words.len() < rows * row_words {
            self.words.resize(rows * row_words, 0);
        }
        (self.row_words, self.rows, self.cols) = (row_words, rows, cols);
        self.form = Some(form);
        row_words
    }

    /// How many rows are prepared.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the rows can be multiplied by weights of such inputs.
    pub(crate) fn fits(&self, form: RowForm, cols: usize) -> bool {
        self.form == Some(form) && self.cols == cols
    }

    /// Rows `row ..`, each from word `word` on.
    #[inline(always)]
    pub(crate) fn from(&self, row: usize, word: usize) -> Rows<'_> {
        Rows::new(&self.words[row * self.row_words + word..], self.row_words)
    }
}

struct RowWords {
    form: RowForm,
    cols: usize,
}

impl Kernel for RowWords {
    type Output = usize;
    #[inline(always)]
    fn run<S: Int8>(self, _: S) -> usize {
        match self.form {
            RowForm::F32 => self.cols,
            RowForm::Bf16 => self.cols.div_ceil(2) * <S as Bf16>::PAIR_WORDS,
            RowForm::Int8 => self.cols.div_ceil(CHUNK) * chunk_words::<S>(),
        }
    }
}

struct Prepare<'a> {
    form: RowForm,
    x: &'a [f32],
    cols: usize,
    words: &'a mut [u32],
    row_words: usize,
}

impl Kernel for Prepare<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) {
        let rows = self.x.chunks_exact(self.cols);
        for (x, words) in rows.zip(self.words.chunks_exact_mut(self.row_words)) {
            prepare_row(simd, self.form, x, words);
        }
    }
}

/// Rows may be prepared in pieces of so many numbers. Long ones: what makes the numbers and what rounds them each go through a piece
/// without waiting for the other.
pub(crate) const PIECE: usize = 8 * CHUNK;

/// Words of a prepared piece.
#[inline(always)]
pub(crate) const fn piece_words<S: Int8>(form: RowForm) -> usize {
    match form {
        RowForm::F32 => PIECE,
        RowForm::Bf16 => PIECE / 2 * S::PAIR_WORDS,
        RowForm::Int8 => PIECE / CHUNK * chunk_words::<S>(),
    }
}

/// Prepares one row, or a piece of one.
#[inline(always)]
pub(crate) fn prepare_row<S: Int8>(simd: S, form: RowForm, x: &[f32], words: &mut [u32]) {
    match form {
        RowForm::F32 => SingleElement::prepare(simd, x, words),
        RowForm::Bf16 => Bf16Element::prepare(simd, x, words),
        RowForm::Int8 => prepare_int8(simd, x, words),
    }
}

/// Words of an int8 chunk.
#[inline(always)]
pub(crate) const fn chunk_words<S: Int8>() -> usize {
    HEAD_WORDS + CHUNK / 4 * S::QUAD_WORDS
}

/// The head of an int8 chunk: what stands beside its quads. Weights are held as unsigned bytes, `w + 128` or `w + 32`, and the sums
/// of products start at what that adds.
pub(crate) struct Head;

impl Head {
    /// f32: what one in int8 stands for; above zero, or NaN.
    pub(crate) const SCALE: usize = 0;
    /// f32: one over that.
    pub(crate) const INVERSE: usize = 1;
    /// i32: -128 times the sum of all inputs.
    pub(crate) const OFFSET: usize = 2;
    /// i32: -128 times the sum of each 32 inputs.
    pub(crate) const OFFSET_32: usize = 3;
    /// i32: -32 times the sum of each 16 inputs.
    pub(crate) const OFFSET_16: usize = 5;
    /// f32: the sum of each 32 inputs.
    pub(crate) const SUM_32: usize = 9;
    /// Where the quads begin.
    pub(crate) const QUADS: usize = HEAD_WORDS;
}

#[inline(always)]
fn prepare_int8<S: Int8>(simd: S, x: &[f32], words: &mut [u32]) {
    let (whole, rest) = x.as_chunks::<CHUNK>();
    let mut chunks = words.chunks_exact_mut(chunk_words::<S>());
    for (x, words) in whole.iter().zip(&mut chunks) {
        prepare_chunk(simd, load_chunk(simd, x), words);
    }
    if let Some(words) = chunks.next() {
        let mut padded = [0.0; CHUNK];
        padded[..rest.len()].copy_from_slice(rest);
        prepare_chunk(simd, load_chunk(simd, &padded), words);
    }
}

#[inline(always)]
fn load_chunk<S: Simd>(simd: S, x: &[f32; CHUNK]) -> [S::V; 4] {
    let x = x.as_chunks::<LANES>().0;
    [
        simd.load(&x[0]),
        simd.load(&x[1]),
        simd.load(&x[2]),
        simd.load(&x[3]),
    ]
}

/// Rounds a chunk to multiples of a 127th of its largest number. Infinities and NaN make the scale NaN, and so every product.
#[inline(always)]
fn prepare_chunk<S: Int8>(simd: S, x: [S::V; 4], words: &mut [u32]) {
    let largest = simd.largest(x);
    let (scale, inverse) = if !largest.is_finite() {
        (f32::NAN, 0.0)
    } else if largest > SMALLEST {
        (largest / 127.0, 127.0 / largest)
    } else {
        (1.0, 0.0)
    };
    words[Head::SCALE] = scale.to_bits();
    words[Head::INVERSE] = if inverse > 0.0 { inverse } else { 1.0 }.to_bits();
    let inverse = simd.splat(inverse);
    let mut scaled = x;
    for scaled in &mut scaled {
        *scaled = simd.mul(*scaled, inverse);
    }
    let sums = simd.round_quads(scaled, &mut words[Head::QUADS..]);
    for pair in 0..2 {
        let halves = [sums[2 * pair], sums[2 * pair + 1]];
        let sum = halves[0] + halves[1];
        words[Head::OFFSET_32 + pair] = (-128 * sum) as u32;
        words[Head::SUM_32 + pair] = (sum as f32).to_bits();
        words[Head::OFFSET_16 + 2 * pair] = (-32 * halves[0]) as u32;
        words[Head::OFFSET_16 + 2 * pair + 1] = (-32 * halves[1]) as u32;
    }
    words[Head::OFFSET] = (-128 * sums.iter().sum::<i32>()) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, reference};

    /// What a prepared int8 row stands for, from the words of the portable set.
    fn read_back(x: &[f32]) -> Vec<f32> {
        let machine = &mut Machine::new(Isa::all()[0], 1);
        let mut rows = PreparedRows::default();
        rows.fill(machine, RowForm::Int8, x, x.len());
        let chunks = rows.words.chunks_exact(HEAD_WORDS + CHUNK / 4);
        let numbers = chunks.flat_map(|chunk| {
            let scale = f32::from_bits(chunk[Head::SCALE]);
            let quads = chunk[Head::QUADS..].iter();
            quads.flat_map(move |quad| quad.to_le_bytes().map(|q| f32::from(q as i8) * scale))
        });
        numbers.take(x.len()).collect()
    }

    #[test]
    fn rows_are_rounded_chunk_by_chunk() {
        for len in [1, 5, 63, 64, 65, 128, 130, 700] {
            let x: Vec<f32> = (0..len)
                .map(|i| ((i * 37 % 101) as f32 - 50.0) * (i / CHUNK + 1) as f32)
                .collect();
            assert_eq!(read_back(&x), reference::rounded_to_int8(&x, len), "{len}");
        }
    }

    #[test]
    fn zeros_and_tiny_numbers_make_zeros() {
        assert_eq!(read_back(&[0.0; 40]), [0.0; 40]);
        assert_eq!(read_back(&[1e-38; 40]), [0.0; 40]);
    }

    #[test]
    fn what_is_not_finite_spoils_the_row() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 2 * CHUNK];
            x[CHUNK + 20] = bad;
            let back = read_back(&x);
            assert!(back[CHUNK..].iter().all(|x| x.is_nan()), "{bad}");
        }
    }
}
