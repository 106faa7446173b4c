//! What decoding costs on a 910B as the stand-in models it (`ascend/standin/src/timing.rs`): `cargo bench -p ropeteam-ascend --bench
//! decode`. The shape is Qwen2-7B's in bf16, every sequence has 1024 tokens. Nothing is computed; tasks take the time that their bytes and
//! their arithmetic need, calls cost the host what its table says, and between two steps the host is busy for `TURN`: it chooses tokens,
//! tells them and plans. The clock is counted, so the figures are the same on every machine; the last column alone is this machine's.

#[path = "../tests/rig/mod.rs"]
mod rig;

use rig::{StandIn, stand_in};
use ropeteam_ascend::{AclDevice, AscendOptions};
use ropeteam_device::{
    Act, Answer, AttentionShape, ColumnMask, Device, DeviceError, Dtype, Float, Ids, Join, KvShape,
    Precision, Rope, Rows, Segment, TensorView, Weight,
};
use std::time::Instant;

const HIDDEN: usize = 3584;
const HEADS: usize = 28;
const KV_HEADS: usize = 4;
const HEAD_DIM: usize = 128;
const QKV: usize = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
const INTERMEDIATE: usize = 18_944;
const LAYERS: usize = 28;
const VOCAB: usize = 152_064;
const BLOCK: u32 = 128;
/// Tokens that every sequence has.
const CONTEXT: u32 = 1024;
const BATCHES: [usize; 3] = [1, 32, 128];
/// Microseconds of the host between two steps.
const TURN: f64 = 200.0;
/// Steps before the measured ones, in which executors are prepared and graphs captured.
const WARM: u32 = 6;
const STEPS: u32 = 20;

const SHAPE: AttentionShape = AttentionShape {
    heads: HEADS,
    kv_heads: KV_HEADS,
    head_dim: HEAD_DIM,
    scale: 0.088,
    window: None,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Eager,
    Pipelined,
    Graph,
}

struct Layer {
    norms: [Weight; 2],
    qkv: Weight,
    output: Weight,
    gate_up: Weight,
    down: Weight,
}

struct Decoder {
    device: AclDevice,
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
    logits: Act,
}

fn view(zeros: &[u8], shape: [usize; 2]) -> TensorView<'_> {
    TensorView {
        dtype: Dtype::BF16,
        shape,
        bytes: &zeros[..2 * shape[0] * shape[1]],
        row_order: None,
        scales: None,
    }
}

impl Decoder {
    fn new(options: AscendOptions) -> Result<Self, DeviceError> {
        let mut device = AclDevice::open(options)?;
        // Pages that nobody writes take no memory.
        let zeros = vec![0u8; 2 * VOCAB * HIDDEN];
        let most = BATCHES[BATCHES.len() - 1];
        device.alloc_kv(KvShape {
            layers: LAYERS,
            blocks: most * (CONTEXT / BLOCK + 1) as usize,
            block_size: BLOCK as usize,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
        })?;
        let embedding = device.load_embedding(&view(&zeros, [VOCAB, HIDDEN]), false)?;
        let head = device.load_embedding(&view(&zeros, [VOCAB, HIDDEN]), true)?;
        let final_norm = device.load_vector(&view(&zeros, [HIDDEN, 1]))?;
        let mut layers = Vec::new();
        for _ in 0..LAYERS {
            let mut linear = |outputs, inputs, bias: bool| {
                let biases = [view(&zeros, [outputs, 1])];
                let biases = &biases[..usize::from(bias)];
                device.load_linear(&[view(&zeros, [outputs, inputs])], biases)
            };
            layers.push(Layer {
                qkv: linear(QKV, HIDDEN, true)?,
                output: linear(HIDDEN, HEADS * HEAD_DIM, false)?,
                gate_up: linear(2 * INTERMEDIATE, HIDDEN, false)?,
                down: linear(HIDDEN, INTERMEDIATE, false)?,
                norms: [
                    device.load_vector(&view(&zeros, [HIDDEN, 1]))?,
                    device.load_vector(&view(&zeros, [HIDDEN, 1]))?,
                ],
            });
        }
        let mut alloc = |cols| device.alloc(most, cols);
        Ok(Self {
            residual: alloc(HIDDEN)?,
            hidden: alloc(HIDDEN)?,
            context: alloc(HEADS * HEAD_DIM)?,
            qkv: alloc(QKV)?,
            gate_up: alloc(2 * INTERMEDIATE)?,
            logits: alloc(VOCAB)?,
            embedding,
            head,
            layers,
            final_norm,
            rope: Rope {
                inv_freq: vec![0.5; HEAD_DIM / 2],
                scale: 1.0,
                interleaved: false,
            },
            device,
        })
    }

    /// Enqueues a step as the models crate does.
    fn enqueue(&mut self, ids: Ids<'_>, rows: &Rows) -> Result<Answer, DeviceError> {
        let device: &mut dyn Device = &mut self.device;
        let (count, eps) = (ids.count(), 1e-6);
        if !device.begin_step(&ids, rows, true)? {
            match ids {
                Ids::Given(ids) => device.embed(self.embedding, ids, self.residual)?,
                Ids::Found(rows) => device.embed_found(self.embedding, rows, self.residual)?,
            }
            let join = |norm| Join {
                result: self.hidden,
                residual: self.residual,
                norm,
                eps,
            };
            let first = self.layers[0].norms[0];
            device.rms_norm(self.residual, first, eps, count, self.hidden)?;
            for (index, layer) in self.layers.iter().enumerate() {
                match index {
                    0 => device.linear(self.hidden, layer.qkv, count, self.qkv)?,
                    _ => device.joined_linear(join(layer.norms[0]), layer.qkv, count, self.qkv)?,
                }
                device.rope_and_cache(self.qkv, index, &SHAPE, &self.rope, rows)?;
                device.attention(self.qkv, index, &SHAPE, rows, self.context)?;
                device.linear(self.context, layer.output, count, self.hidden)?;
                device.joined_linear(join(layer.norms[1]), layer.gate_up, count, self.gate_up)?;
                device.gated_linear(self.gate_up, layer.down, count, self.hidden)?;
            }
            device.joined_linear(join(self.final_norm), self.head, count, self.logits)?;
        }
        device.end_step()?;
        device.find_best(self.logits, count)
    }
}

fn rows(count: usize, position: u32) -> Rows {
    let per_sequence = CONTEXT / BLOCK + 1;
    let blocks = |row: u32| (row * per_sequence..(row + 1) * per_sequence).collect();
    let all = 0..count as u32;
    Rows {
        positions: vec![position; count],
        slots: all
            .clone()
            .map(|row| (row * per_sequence + position / BLOCK) * BLOCK + position % BLOCK)
            .collect(),
        segments: all
            .map(|row| Segment {
                first_row: row as usize,
                rows: 1,
                blocks: blocks(row),
            })
            .collect(),
    }
}

/// Per step: launches, microseconds of the host at work, of the device at work, of the step, and of this machine.
fn measure(
    stand_in: &StandIn,
    decoder: &mut Decoder,
    mode: Mode,
    batch: usize,
) -> Result<[f64; 5], DeviceError> {
    let allowed = ColumnMask {
        limit: VOCAB,
        holes: Vec::new(),
    };
    let mut pending = None;
    let mut found = Vec::new();
    let mut waited = 0.0;
    let mut begin = None;
    for step in 0..WARM + STEPS {
        if step == WARM {
            let (host, busy) = (stand_in.microseconds(false), stand_in.microseconds(true));
            begin = Some((Instant::now(), decoder.device.launches().0, host, busy));
            waited = 0.0;
        }
        let rows = rows(batch, CONTEXT + step);
        let ids = vec![0; batch];
        let ids = match mode == Mode::Eager || step == 0 {
            true => Ids::Given(&ids),
            false => Ids::Found(batch),
        };
        let answer = decoder.enqueue(ids, &rows)?;
        let due = match mode {
            Mode::Eager => Some(answer),
            _ => pending.replace(answer),
        };
        if let Some(answer) = due {
            let since = stand_in.microseconds(false);
            decoder.device.collect_best(answer, &allowed, &mut found)?;
            waited += stand_in.microseconds(false) - since;
            stand_in.spend(TURN);
        }
    }
    let Some((since, launches, host, busy)) = begin else {
        return Ok([0.0; 5]);
    };
    let per_step = |total: f64| total / f64::from(STEPS);
    let whole = stand_in.microseconds(false) - host;
    let launched = decoder.device.launches().0 - launches;
    Ok([
        per_step(launched as f64),
        per_step(whole - waited),
        per_step(stand_in.microseconds(true) - busy),
        per_step(whole),
        per_step(since.elapsed().as_secs_f64() * 1e6),
    ])
}

fn main() -> Result<(), DeviceError> {
    let stand_in = stand_in();
    stand_in.configure("violations=say;memory_mib=65536;compute=no");
    println!(
        "| batch | mode | launches | host µs | device µs | step µs | over the device | tokens/s | µs of this machine |"
    );
    println!("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for mode in [Mode::Eager, Mode::Pipelined, Mode::Graph] {
        let mut decoder = Decoder::new(AscendOptions {
            graphs: mode == Mode::Graph,
            ..stand_in.options(0, Precision::Bf16, Float::Bf16)
        })?;
        for batch in BATCHES {
            let [launches, host, device, step, own] = measure(stand_in, &mut decoder, mode, batch)?;
            println!(
                "| {batch} | {} | {launches:.0} | {host:.0} | {device:.0} | {step:.0} | {:.1} % | {:.0} | {own:.0} |",
                format!("{mode:?}").to_lowercase(),
                100.0 * (step / device - 1.0),
                batch as f64 * 1e6 / step
            );
        }
    }
    stand_in.clean();
    Ok(())
}
