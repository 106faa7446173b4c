//! Checks of `rope_and_cache` and `attention`: sequences with scattered blocks are computed whole, in chunks and token by
//! token, mixed in one step; all ways must give the same bits, near the reference. The cache held infinities and NaN
//! before.

use super::Make;
use super::numbers::{Arithmetic, Random, assert_close, assert_same_bits};
use super::session::Session;
use crate::{
    AttentionLimits, AttentionShape, Float, KvPrecision, KvShape, Precision, Rope, Rows, Segment,
};
use ropeteam_kernels::reference;

/// One kind of attention.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
    window: Option<usize>,
    /// Pairs that are rotated.
    pairs: usize,
    interleaved: bool,
    /// Tokens of each sequence.
    lengths: [usize; SEQUENCES],
}

impl Case {
    const fn new(heads: usize, kv_heads: usize, head_dim: usize, block_size: usize) -> Self {
        Self {
            heads,
            kv_heads,
            head_dim,
            block_size,
            window: None,
            pairs: head_dim / 2,
            interleaved: false,
            lengths: [1, 37, 150, 64],
        }
    }

    /// With sequences so long that devices may sum them up in pieces.
    const fn long(mut self) -> Self {
        self.lengths = [600, 1, 1100, 513];
        self
    }

    const fn window(mut self, window: usize) -> Self {
        self.window = Some(window);
        self
    }

    const fn rotary(mut self, pairs: usize, interleaved: bool) -> Self {
        self.pairs = pairs;
        self.interleaved = interleaved;
        self
    }

    /// The case as a device with these limits computes it; `None` if it does not.
    fn within(mut self, limits: &AttentionLimits) -> Option<Self> {
        self.block_size = self.block_size.next_multiple_of(limits.block_size_step);
        let computes = self.head_dim.is_multiple_of(limits.head_dim_step)
            && self.head_dim <= limits.head_dim_max
            && (self.window.is_none() || limits.windows);
        computes.then_some(self)
    }

    fn cols(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    fn shape(&self) -> AttentionShape {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            scale: 1.3 / (self.head_dim as f32).sqrt(),
            window: self.window,
        }
    }

    fn rope(&self) -> Rope {
        let freq = |i: usize| 10_000f32.powf(-(i as f32) / self.pairs as f32);
        Rope {
            inv_freq: (0..self.pairs).map(freq).collect(),
            scale: 1.1,
            interleaved: self.interleaved,
        }
    }
}

const CASES: [Case; 11] = [
    Case::new(9, 3, 64, 16),
    Case::new(4, 4, 16, 16).rotary(4, true),
    Case::new(8, 1, 32, 4).window(5),
    Case::new(2, 1, 8, 3).rotary(4, true),
    Case::new(14, 2, 80, 64).window(70),
    Case::new(3, 3, 5, 7).rotary(1, false),
    Case::new(6, 2, 128, 32).rotary(32, true),
    Case::new(2, 2, 256, 20).window(1),
    Case::new(1, 1, 1, 1).rotary(0, false),
    Case::new(3, 1, 8, 16).long(),
    Case::new(2, 2, 4, 16).window(530).long(),
];
const LAYERS: usize = 2;
const SEQUENCES: usize = 4;

pub(super) fn check(precision: Precision, makes: &[Make<'_>]) {
    let limits = makes[0]().info().attention;
    for case in CASES.iter().filter_map(|case| case.within(&limits)) {
        let mut first: Option<Vec<Vec<f32>>> = None;
        for (index, make) in makes.iter().enumerate() {
            let mut run = Run::new(Session::new(make(), precision, 11), case);
            let expected = first.get_or_insert_with(|| run.compute(&Ways::Whole));
            for way in [
                Ways::Whole,
                Ways::Chunks(3),
                Ways::Chunks(50),
                Ways::OneByOne,
            ] {
                let found = run.compute(&way);
                for (sequence, (found, expected)) in found.iter().zip(&*expected).enumerate() {
                    let what = format!("{case:?}, device {index}, sequence {sequence}, {way:?}");
                    assert_same_bits(&what, found, expected);
                }
            }
            if index == 0 {
                run.compare_to_reference(expected);
            }
        }
    }
}

/// How sequences are cut into steps.
#[derive(Debug)]
enum Ways {
    /// Every sequence in one step of its own.
    Whole,
    /// All sequences side by side, in chunks of at most so many rows.
    Chunks(usize),
    /// All sequences side by side, token by token.
    OneByOne,
}

struct Run {
    session: Session,
    case: Case,
    /// Per sequence: rows of `qkv` before rotation, to be embedded.
    qkv: Vec<Vec<f32>>,
    /// The same as the embedding gives them back.
    held: Vec<Vec<f32>>,
    /// Per sequence: its block table.
    blocks: Vec<Vec<u32>>,
}

impl Run {
    fn new(mut session: Session, case: Case) -> Self {
        let qkv = case.lengths.map(|len| {
            let bf16 = Arithmetic {
                precision: Precision::Bf16,
                activations: Float::Bf16,
            };
            bf16.rounded(&session.random.numbers(len * case.cols()))
        });
        let held = qkv.iter().map(|qkv| session.embedded(qkv, case.cols()));
        let held = held.collect();
        let tables = case.lengths.map(|len| len.div_ceil(case.block_size));
        let mut free = session.random.shuffled(tables.iter().sum::<usize>() + 3);
        let blocks = tables.map(|count| free.split_off(free.len() - count));
        let shape = KvShape {
            layers: LAYERS,
            blocks: tables.iter().sum::<usize>() + 3,
            block_size: case.block_size,
            kv_heads: case.kv_heads,
            head_dim: case.head_dim,
        };
        assert!(
            session.device.kv_block_bytes(&shape) > 0,
            "bytes of a block"
        );
        session.device.alloc_kv(shape).expect("alloc_kv");
        Self {
            session,
            case,
            qkv: qkv.into(),
            held,
            blocks: blocks.into(),
        }
    }

    /// Outputs per sequence, `[len, heads * head_dim]`.
    fn compute(&mut self, way: &Ways) -> Vec<Vec<f32>> {
        self.poison();
        let mut done = vec![0; SEQUENCES];
        let mut out = vec![Vec::new(); SEQUENCES];
        let mut random = Random(3);
        while let Some(unfinished) = (0..SEQUENCES).find(|s| done[*s] < self.case.lengths[*s]) {
            let mut step = vec![0; SEQUENCES];
            for (s, rows) in step.iter_mut().enumerate() {
                let left = self.case.lengths[s] - done[s];
                *rows = match way {
                    Ways::Whole if s == unfinished => left,
                    Ways::Whole => 0,
                    Ways::Chunks(most) => left.min(random.below(*most) + 1),
                    Ways::OneByOne => left.min(1),
                };
            }
            self.step(&mut done, &step, &mut out);
        }
        out
    }

    /// Leaves infinities and NaN in every block that will be used.
    fn poison(&mut self) {
        let cols = self.case.cols();
        for (sequence, blocks) in self.blocks.clone().into_iter().enumerate() {
            let positions = blocks.len() * self.case.block_size;
            let values: Vec<f32> = [f32::INFINITY, f32::NAN].repeat((positions * cols).div_ceil(2));
            let act = self.session.alloc(positions, cols);
            self.session
                .embed_all(&values[..positions * cols], cols, act);
            let rows = self.rows(&[(sequence, 0, positions)]);
            for layer in 0..LAYERS {
                let (shape, rope) = (self.case.shape(), self.case.rope());
                let done = self
                    .session
                    .device
                    .rope_and_cache(act, layer, &shape, &rope, &rows);
                done.expect("rope_and_cache");
            }
        }
    }

    /// `Rows` of chunks (sequence, first position, rows).
    fn rows(&self, chunks: &[(usize, usize, usize)]) -> Rows {
        let mut rows = Rows::default();
        for (sequence, start, count) in chunks {
            let blocks = &self.blocks[*sequence];
            let segment = Segment {
                first_row: rows.positions.len(),
                rows: *count,
                blocks: blocks.clone(),
            };
            rows.segments.push(segment);
            for position in *start..start + count {
                let block = blocks[position / self.case.block_size] as usize;
                rows.positions.push(position as u32);
                rows.slots
                    .push((block * self.case.block_size + position % self.case.block_size) as u32);
            }
        }
        rows
    }

    /// Computes `step[s]` rows of each sequence s; the last layer's outputs are kept.
    fn step(&mut self, done: &mut [usize], step: &[usize], out: &mut [Vec<f32>]) {
        let cols = self.case.cols();
        let chunks: Vec<_> = (0..step.len())
            .filter(|s| step[*s] > 0)
            .map(|s| (s, done[s], step[s]))
            .collect();
        let rows = self.rows(&chunks);
        let values: Vec<f32> = chunks
            .iter()
            .flat_map(|(s, start, count)| &self.qkv[*s][start * cols..(start + count) * cols])
            .copied()
            .collect();
        let count = rows.positions.len();
        let out_cols = self.case.heads * self.case.head_dim;
        let (act, heads) = (
            self.session.alloc(count, cols),
            self.session.alloc(count, out_cols),
        );
        let (shape, rope) = (self.case.shape(), self.case.rope());
        for layer in 0..LAYERS {
            self.session.embed_all(&values, cols, act);
            let device = &mut self.session.device;
            device
                .rope_and_cache(act, layer, &shape, &rope, &rows)
                .expect("rope_and_cache");
            device
                .attention(act, layer, &shape, &rows, heads)
                .expect("attention");
        }
        let found = self.session.read(heads, count);
        for ((sequence, _, count), segment) in chunks.into_iter().zip(&rows.segments) {
            done[sequence] += count;
            out[sequence]
                .extend_from_slice(&found[segment.first_row * out_cols..][..count * out_cols]);
        }
    }

    fn compare_to_reference(&self, found: &[Vec<f32>]) {
        for (sequence, found) in found.iter().enumerate() {
            let expected = self.reference(&self.held[sequence]);
            // Probabilities may be rounded to bf16 as well, and so may what the reference did not see rounded.
            let arithmetic = self.session.arithmetic;
            let tolerance = arithmetic.tolerance(match (self.kv(), arithmetic.precision) {
                (KvPrecision::ByWeights, Precision::F32) => 2e-5,
                // Numbers at the edge between two whole ones may be rounded to either.
                _ => 1e-2,
            });
            assert_close(
                &format!("{:?}, sequence {sequence}", self.case),
                found,
                &expected,
                tolerance,
            );
        }
    }

    fn kv(&self) -> KvPrecision {
        self.session.device.info().kv
    }

    fn reference(&self, qkv: &[f32]) -> Vec<f32> {
        let Case {
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.case;
        let (cols, rope, shape) = (self.case.cols(), self.case.rope(), self.case.shape());
        let mut qkv = qkv.to_vec();
        for (position, row) in qkv.chunks_exact_mut(cols).enumerate() {
            for head in row[..(heads + kv_heads) * head_dim].chunks_exact_mut(head_dim) {
                let position = position as u32;
                reference::rotate_head(
                    head,
                    position,
                    &rope.inv_freq,
                    rope.scale,
                    rope.interleaved,
                );
            }
        }
        let mut qkv = self.session.arithmetic.rounded(&qkv);
        if self.kv() == KvPrecision::Int8 {
            for row in qkv.chunks_exact_mut(cols) {
                let (keys, values) = row[heads * head_dim..].split_at_mut(kv_heads * head_dim);
                for key in keys.chunks_exact_mut(head_dim) {
                    key.copy_from_slice(&reference::rounded_together(key, 32));
                }
                for value in values.chunks_exact_mut(head_dim) {
                    value.copy_from_slice(&reference::rounded_together(value, head_dim));
                }
            }
        }
        let column = |first: usize, positions: std::ops::Range<usize>| -> Vec<f32> {
            positions
                .flat_map(|p| &qkv[p * cols + first..][..head_dim])
                .copied()
                .collect()
        };
        let mut out = Vec::new();
        for position in 0..qkv.len() / cols {
            let start = self
                .case
                .window
                .map_or(0, |window| (position + 1).saturating_sub(window));
            for head in 0..heads {
                let kv_head = heads + head / (heads / kv_heads);
                let query = column(head * head_dim, position..position + 1);
                let keys = column(kv_head * head_dim, start..position + 1);
                let values = column((kv_head + kv_heads) * head_dim, start..position + 1);
                out.extend(reference::attention_head(
                    &query,
                    &keys,
                    &values,
                    shape.scale,
                ));
            }
        }
        out
    }
}
