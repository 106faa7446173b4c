//! Whole steps: operator by operator, enqueued ahead with the ids on the device, and as graphs. The ids are the same, nothing is held
//! against us, and a graph takes few launches.

mod rig;

use rig::stand_in;
use ropeteam_ascend::{AclDevice, AscendOptions};
use ropeteam_device::{
    Act, AttentionShape, ColumnMask, Device, DeviceError, Dtype, Float, Ids, Join, KvShape,
    Precision, Rope, Rows, Segment, TensorView, Weight,
};

const HIDDEN: usize = 64;
const HEADS: usize = 4;
const HEAD_DIM: usize = 16;
const INTERMEDIATE: usize = 48;
const LAYERS: usize = 2;
const VOCAB: usize = 96;
const BLOCK: u32 = 128;
const ROWS: usize = 3;

const SHAPE: AttentionShape = AttentionShape {
    heads: HEADS,
    kv_heads: HEADS,
    head_dim: HEAD_DIM,
    scale: 0.25,
    window: None,
};

struct Layer {
    norm: Weight,
    qkv: Weight,
    output: Weight,
    gate_up: Weight,
    down: Weight,
}

/// A small decoder.
struct Decoder {
    device: AclDevice,
    table: Weight,
    layers: Vec<Layer>,
    rope: Rope,
    residual: Act,
    hidden: Act,
    context: Act,
    qkv: Act,
    gate_up: Act,
    logits: Act,
}

fn numbers(count: usize, seed: usize) -> Vec<u8> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 997) as f32 / 2000.0 - 0.25;
    (0..count).flat_map(|i| number(i).to_le_bytes()).collect()
}

fn weight(device: &mut dyn Device, [outputs, inputs]: [usize; 2], seed: usize) -> Weight {
    let bytes = numbers(outputs * inputs, seed);
    let view = TensorView {
        dtype: Dtype::F32,
        shape: [outputs, inputs],
        bytes: &bytes,
        row_order: None,
        scales: None,
    };
    match (inputs, outputs) {
        (1, _) => device.load_vector(&view),
        (_, VOCAB) => device.load_embedding(&view, true),
        _ => device.load_linear(&[view], &[]),
    }
    .expect("a weight")
}

impl Decoder {
    fn new(options: AscendOptions) -> Self {
        let mut device = AclDevice::open(options).expect("a device");
        device
            .alloc_kv(KvShape {
                layers: LAYERS,
                blocks: 2 * ROWS,
                block_size: BLOCK as usize,
                kv_heads: HEADS,
                head_dim: HEAD_DIM,
            })
            .expect("alloc_kv");
        let table = weight(&mut device, [VOCAB, HIDDEN], 1);
        let layers = (0..LAYERS)
            .map(|layer| {
                let mut load = |shape, seed| weight(&mut device, shape, 10 * layer + seed);
                Layer {
                    norm: load([HIDDEN, 1], 2),
                    qkv: load([3 * HIDDEN, HIDDEN], 3),
                    output: load([HIDDEN, HIDDEN], 4),
                    gate_up: load([2 * INTERMEDIATE, HIDDEN], 5),
                    down: load([HIDDEN, INTERMEDIATE], 6),
                }
            })
            .collect();
        let mut alloc = |cols| device.alloc(ROWS, cols).expect("alloc");
        Self {
            residual: alloc(HIDDEN),
            hidden: alloc(HIDDEN),
            context: alloc(HIDDEN),
            qkv: alloc(3 * HIDDEN),
            gate_up: alloc(2 * INTERMEDIATE),
            logits: alloc(VOCAB),
            table,
            layers,
            rope: Rope {
                inv_freq: vec![0.5; HEAD_DIM / 2],
                scale: 1.0,
                interleaved: false,
            },
            device,
        }
    }

    fn forward(&mut self, ids: Ids<'_>, rows: &Rows) -> Result<(), DeviceError> {
        let device: &mut dyn Device = &mut self.device;
        let count = ids.count();
        let known = device.begin_step(&ids, rows, true)?;
        if !known {
            match ids {
                Ids::Given(ids) => device.embed(self.table, ids, self.residual)?,
                Ids::Found(rows) => device.embed_found(self.table, rows, self.residual)?,
            }
            let (norm, eps) = (self.layers[0].norm, 1e-5);
            device.rms_norm(self.residual, norm, eps, count, self.hidden)?;
            for (index, layer) in self.layers.iter().enumerate() {
                device.linear(self.hidden, layer.qkv, count, self.qkv)?;
                device.rope_and_cache(self.qkv, index, &SHAPE, &self.rope, rows)?;
                device.attention(self.qkv, index, &SHAPE, rows, self.context)?;
                device.linear(self.context, layer.output, count, self.hidden)?;
                let join = Join {
                    result: self.hidden,
                    residual: self.residual,
                    norm: layer.norm,
                    eps,
                };
                device.joined_linear(join, layer.gate_up, count, self.gate_up)?;
                device.gated_linear(self.gate_up, layer.down, count, self.hidden)?;
                device.add_rms_norm(
                    self.hidden,
                    self.residual,
                    layer.norm,
                    eps,
                    count,
                    self.hidden,
                )?;
            }
            device.linear(self.hidden, self.table, count, self.logits)?;
        }
        assert!(device.end_step()?);
        Ok(())
    }

    /// The ids of `steps` steps of all rows, each beginning with its own number; `ahead`: each step is enqueued before the one before
    /// was collected.
    fn ids(&mut self, steps: u32, ahead: bool) -> Vec<u32> {
        let allowed = ColumnMask {
            limit: VOCAB,
            holes: Vec::new(),
        };
        let mut all = Vec::new();
        let mut last: Vec<u32> = (0..ROWS as u32).collect();
        let mut pending = None;
        for step in 0..steps {
            let rows = rows(step);
            if ahead && step > 0 {
                self.forward(Ids::Found(ROWS), &rows).expect("a step ahead");
            } else {
                self.forward(Ids::Given(&last), &rows).expect("a step");
            }
            let answer = self.device.find_best(self.logits, ROWS).expect("find_best");
            let due = match ahead {
                true => pending.replace(answer),
                false => Some(answer),
            };
            if let Some(answer) = due {
                last = self.collect(answer, &allowed);
                all.extend_from_slice(&last);
            }
        }
        if let Some(answer) = pending {
            all.extend(self.collect(answer, &allowed));
        }
        all
    }

    fn collect(&mut self, answer: ropeteam_device::Answer, allowed: &ColumnMask) -> Vec<u32> {
        let mut found = Vec::new();
        let settled = self.device.collect_best(answer, allowed, &mut found);
        assert!(settled.expect("collect_best"));
        found.into_iter().map(|id| id.expect("a number")).collect()
    }
}

fn rows(position: u32) -> Rows {
    let block = |row: u32| vec![2 * row, 2 * row + 1];
    let slot = |row: u32| (2 * row + position / BLOCK) * BLOCK + position % BLOCK;
    Rows {
        positions: vec![position; ROWS],
        slots: (0..ROWS as u32).map(slot).collect(),
        segments: (0..ROWS)
            .map(|row| Segment {
                first_row: row,
                rows: 1,
                blocks: block(row as u32),
            })
            .collect(),
    }
}

#[test]
fn steps_ahead_and_graphs_give_the_same_ids() {
    let stand_in = stand_in();
    let options = |number, graphs| AscendOptions {
        graphs,
        ..stand_in.options(number, Precision::Bf16, Float::Bf16)
    };
    const STEPS: u32 = 131;
    let expected = Decoder::new(options(0, false)).ids(STEPS, false);
    assert!(expected.iter().any(|id| *id != expected[0]), "{expected:?}");
    stand_in.clean();
    for (number, graphs, ahead) in [(1, false, true), (2, true, false), (3, true, true)] {
        let mut decoder = Decoder::new(options(number, graphs));
        let found = decoder.ids(STEPS, ahead);
        assert_eq!(found, expected, "graphs {graphs}, ahead {ahead}");
        let before = decoder.device.launches().0;
        decoder
            .forward(Ids::Given(&[0; ROWS]), &rows(0))
            .expect("a step");
        let launched = decoder.device.launches().0 - before;
        // A graph and the numbers of its attentions, or every operator.
        let wanted = if graphs {
            1 + LAYERS as u64
        } else {
            3 + 11 * LAYERS as u64
        };
        assert_eq!(launched, wanted, "graphs {graphs}");
        drop(decoder);
        stand_in.clean();
    }
    for seed in 0..4 {
        stand_in.configure(&format!("schedule=random:{seed}"));
        let found = Decoder::new(options(4, true)).ids(12, true);
        assert_eq!(found, expected[..12 * ROWS], "seed {seed}");
        stand_in.clean();
    }
    stand_in.configure("schedule=lazy");
}
