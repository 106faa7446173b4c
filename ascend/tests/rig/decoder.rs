//! A decoder that calls a device as the models crate does, of any size, for tests and measurements of whole steps.

use ropeteam_ascend::{AclDevice, AscendOptions};
use ropeteam_device::{
    Act, Answer, AttentionShape, ColumnMask, Device, DeviceError, Dtype, Ids, Join, KvShape, Rope,
    Rows, Segment, TensorView, Weight,
};

/// Tokens of a block.
const BLOCK: u32 = 128;
const EPS: f32 = 1e-6;

/// Sizes of a decoder.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub vocab: usize,
    /// Whether the product of queries, keys and values has a bias.
    pub bias: bool,
    /// Most rows of a step.
    pub rows: usize,
    /// Blocks that each sequence has.
    pub blocks: u32,
}

/// A few thousand weights.
pub const SMALL: Sizes = Sizes {
    hidden: 64,
    heads: 4,
    kv_heads: 4,
    head_dim: 16,
    intermediate: 48,
    layers: 2,
    vocab: 96,
    bias: false,
    rows: 3,
    blocks: 2,
};

/// Tokens that every sequence of `QWEN2_7B` has.
pub const CONTEXT: u32 = 1024;

/// Qwen2-7B, with room for 128 sequences.
pub const QWEN2_7B: Sizes = Sizes {
    hidden: 3584,
    heads: 28,
    kv_heads: 4,
    head_dim: 128,
    intermediate: 18_944,
    layers: 28,
    vocab: 152_064,
    bias: true,
    rows: 128,
    blocks: CONTEXT / BLOCK + 1,
};

struct Layer {
    norms: [Weight; 2],
    qkv: Weight,
    output: Weight,
    gate_up: Weight,
    down: Weight,
}

/// A decoder on a device.
pub struct Decoder {
    pub device: AclDevice,
    pub logits: Act,
    sizes: Sizes,
    shape: AttentionShape,
    embedding: Weight,
    head: Weight,
    layers: Vec<Layer>,
    final_norm: Weight,
    rope: Rope,
    residual: Act,
    hidden: Act,
    context: Act,
    qkv: Act,
    gate_up: Act,
}

/// Weights of a decoder: the same numbers in every run, or zeros in pages that nobody writes, which take no memory.
struct Source {
    zeros: Vec<u8>,
    seed: Option<u64>,
}

impl Source {
    /// A matrix in bf16.
    fn bytes(&mut self, [rows, cols]: [usize; 2]) -> Vec<u8> {
        let Some(seed) = &mut self.seed else {
            return Vec::new();
        };
        *seed += 1;
        let number = |i: u64| ((i * 7919 + *seed * 104_729) % 997) as f32 / 2000.0 - 0.25;
        let numbers = (0..(rows * cols) as u64).map(number);
        // The upper half of an f32.
        let halves = numbers.map(|number| (number.to_bits() >> 16) as u16);
        halves.flat_map(u16::to_le_bytes).collect()
    }

    fn view<'a>(&'a self, bytes: &'a [u8], shape: [usize; 2]) -> TensorView<'a> {
        let bytes = match bytes.is_empty() {
            true => &self.zeros[..2 * shape[0] * shape[1]],
            false => bytes,
        };
        TensorView {
            dtype: Dtype::BF16,
            shape,
            bytes,
            row_order: None,
            scales: None,
        }
    }

    fn linear(
        &mut self,
        device: &mut AclDevice,
        shape: [usize; 2],
        bias: bool,
    ) -> Result<Weight, DeviceError> {
        let (own, added) = (self.bytes(shape), self.bytes([shape[0], 1]));
        let biases = [self.view(&added, [shape[0], 1])];
        device.load_linear(&[self.view(&own, shape)], &biases[..usize::from(bias)])
    }

    fn table(
        &mut self,
        device: &mut AclDevice,
        shape: [usize; 2],
        head: bool,
    ) -> Result<Weight, DeviceError> {
        let own = self.bytes(shape);
        device.load_embedding(&self.view(&own, shape), head)
    }

    fn vector(&mut self, device: &mut AclDevice, len: usize) -> Result<Weight, DeviceError> {
        let own = self.bytes([len, 1]);
        device.load_vector(&self.view(&own, [len, 1]))
    }
}

impl Decoder {
    /// With numbers for weights, the same each time.
    pub fn new(options: AscendOptions, sizes: Sizes) -> Result<Self, DeviceError> {
        let source = Source {
            zeros: Vec::new(),
            seed: Some(0),
        };
        Self::load(options, sizes, source)
    }

    /// With nothing but zeros, for measurements.
    pub fn hollow(options: AscendOptions, sizes: Sizes) -> Result<Self, DeviceError> {
        let source = Source {
            zeros: vec![0; 2 * sizes.vocab * sizes.hidden],
            seed: None,
        };
        Self::load(options, sizes, source)
    }

    fn load(options: AscendOptions, sizes: Sizes, mut source: Source) -> Result<Self, DeviceError> {
        let mut device = AclDevice::open(options)?;
        let (hidden, wide) = (sizes.hidden, sizes.intermediate);
        let context = sizes.heads * sizes.head_dim;
        let qkv = context + 2 * sizes.kv_heads * sizes.head_dim;
        device.alloc_kv(KvShape {
            layers: sizes.layers,
            blocks: sizes.rows * sizes.blocks as usize,
            block_size: BLOCK as usize,
            kv_heads: sizes.kv_heads,
            head_dim: sizes.head_dim,
        })?;
        let embedding = source.table(&mut device, [sizes.vocab, hidden], false)?;
        let head = source.table(&mut device, [sizes.vocab, hidden], true)?;
        let final_norm = source.vector(&mut device, hidden)?;
        let mut layers = Vec::new();
        for _ in 0..sizes.layers {
            layers.push(Layer {
                norms: [
                    source.vector(&mut device, hidden)?,
                    source.vector(&mut device, hidden)?,
                ],
                qkv: source.linear(&mut device, [qkv, hidden], sizes.bias)?,
                output: source.linear(&mut device, [hidden, context], false)?,
                gate_up: source.linear(&mut device, [2 * wide, hidden], false)?,
                down: source.linear(&mut device, [hidden, wide], false)?,
            });
        }
        let mut alloc = |cols| device.alloc(sizes.rows, cols);
        Ok(Self {
            residual: alloc(hidden)?,
            hidden: alloc(hidden)?,
            context: alloc(context)?,
            qkv: alloc(qkv)?,
            gate_up: alloc(2 * wide)?,
            logits: alloc(sizes.vocab)?,
            shape: AttentionShape {
                heads: sizes.heads,
                kv_heads: sizes.kv_heads,
                head_dim: sizes.head_dim,
                scale: 1.0 / (sizes.head_dim as f32).sqrt(),
                window: None,
            },
            rope: Rope {
                inv_freq: vec![0.5; sizes.head_dim / 2],
                scale: 1.0,
                interleaved: false,
            },
            sizes,
            embedding,
            head,
            layers,
            final_norm,
            device,
        })
    }

    /// Enqueues a step and asks for its best ids.
    pub fn enqueue(&mut self, ids: Ids<'_>, rows: &Rows) -> Result<Answer, DeviceError> {
        let count = ids.count();
        if !self.device.begin_step(&ids, rows, true)? {
            self.forward(ids, rows)?;
        }
        assert!(self.device.end_step()?, "nothing forbids the capture");
        self.device.find_best(self.logits, count)
    }

    fn forward(&mut self, ids: Ids<'_>, rows: &Rows) -> Result<(), DeviceError> {
        let device: &mut dyn Device = &mut self.device;
        let (count, shape) = (ids.count(), &self.shape);
        match ids {
            Ids::Given(ids) => device.embed(self.embedding, ids, self.residual)?,
            Ids::Found(rows) => device.embed_found(self.embedding, rows, self.residual)?,
        }
        let join = |norm| Join {
            result: self.hidden,
            residual: self.residual,
            norm,
            eps: EPS,
        };
        let first = self.layers[0].norms[0];
        device.rms_norm(self.residual, first, EPS, count, self.hidden)?;
        for (index, layer) in self.layers.iter().enumerate() {
            match index {
                0 => device.linear(self.hidden, layer.qkv, count, self.qkv)?,
                _ => device.joined_linear(join(layer.norms[0]), layer.qkv, count, self.qkv)?,
            }
            device.rope_and_cache(self.qkv, index, shape, &self.rope, rows)?;
            device.attention(self.qkv, index, shape, rows, self.context)?;
            device.linear(self.context, layer.output, count, self.hidden)?;
            device.joined_linear(join(layer.norms[1]), layer.gate_up, count, self.gate_up)?;
            device.gated_linear(self.gate_up, layer.down, count, self.hidden)?;
        }
        device.joined_linear(join(self.final_norm), self.head, count, self.logits)
    }

    /// One row for each of `count` sequences, all at the same position.
    pub fn rows(&self, count: usize, position: u32) -> Rows {
        let blocks = self.sizes.blocks;
        let slot = |row: u32| (row * blocks + position / BLOCK) * BLOCK + position % BLOCK;
        let segment = |row: u32| Segment {
            first_row: row as usize,
            rows: 1,
            blocks: (row * blocks..(row + 1) * blocks).collect(),
        };
        Rows {
            positions: vec![position; count],
            slots: (0..count as u32).map(slot).collect(),
            segments: (0..count as u32).map(segment).collect(),
        }
    }

    /// Waits for a step's best ids.
    pub fn collect(&mut self, answer: Answer) -> Result<Vec<u32>, DeviceError> {
        let allowed = ColumnMask {
            limit: self.sizes.vocab,
            holes: Vec::new(),
        };
        let mut found = Vec::new();
        let settled = self.device.collect_best(answer, &allowed, &mut found)?;
        assert!(settled, "logits are numbers");
        Ok(found.into_iter().flatten().collect())
    }
}
