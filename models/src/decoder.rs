//! The forward pass of a decoder, for every family and every device: embed, then per layer attention and MLP around a
//! residual stream, then the head. What differs between models is in the `DecoderSpec`; what differs between devices is
//! behind `Device`.

use crate::checkpoint::Checkpoint;
use crate::error::LoadError;
use crate::spec::DecoderSpec;
use crate::weights::DecoderWeights;
use ropeteam_device::{Act, Device, DeviceError, HeadNorms, Ids, Join, Rows, Weight};

/// A decoder whose weights and buffers are on a device.
pub(crate) struct Decoder {
    spec: DecoderSpec,
    weights: DecoderWeights,
    buffers: Buffers,
}

/// Activations, sized once for the largest step: `T` tokens, `L` rows with logits.
struct Buffers {
    /// `[T, hidden]`: the residual stream.
    residual: Act,
    /// `[T, hidden]`: normed input of the first layer, then results of attention and MLP.
    hidden: Act,
    /// `[T, hidden]`: a result normed once more; only where the family does so.
    post_normed: Option<Act>,
    /// `[T, (heads + 2 * kv_heads) * head_dim]`: queries, keys, values.
    qkv: Act,
    /// `[T, heads * head_dim]`: what the heads saw.
    context: Act,
    /// `[T, 2 * intermediate]`: gate and up.
    gate_up: Act,
    /// `[L, hidden]`, `[L, heads * head_dim]`: `residual` and `context` of the rows that want logits.
    wanted_residual: Act,
    wanted_context: Act,
    /// `[L, vocab]`.
    logits: Act,
}

impl Buffers {
    fn alloc(
        device: &mut dyn Device,
        spec: &DecoderSpec,
        step_tokens: usize,
        logits_rows: usize,
    ) -> Result<Self, DeviceError> {
        let mut tokens_by = |cols| device.alloc(step_tokens, cols);
        Ok(Self {
            residual: tokens_by(spec.hidden)?,
            hidden: tokens_by(spec.hidden)?,
            post_normed: if spec.has_post_norms() {
                Some(tokens_by(spec.hidden)?)
            } else {
                None
            },
            qkv: tokens_by(spec.query_dim() + 2 * spec.kv_dim())?,
            context: tokens_by(spec.query_dim())?,
            gate_up: tokens_by(2 * spec.intermediate)?,
            wanted_residual: device.alloc(logits_rows, spec.hidden)?,
            wanted_context: device.alloc(logits_rows, spec.query_dim())?,
            logits: device.alloc(logits_rows, spec.vocab)?,
        })
    }
}

/// The tokens of one step.
pub(crate) struct StepTokens<'a> {
    /// Token ids, one per row.
    pub ids: Ids<'a>,
    /// Where the rows belong.
    pub rows: &'a Rows,
    /// Rows whose logits are wanted.
    pub wanted: &'a [u32],
    /// Compute the hidden states of all rows, too; see [`Decoder::hidden`].
    pub hidden: bool,
}

/// The rows that pass through what is behind an attention.
#[derive(Clone, Copy)]
struct Stream {
    context: Act,
    residual: Act,
    rows: usize,
}

/// What a layer begins with.
#[derive(Clone, Copy)]
enum Pending {
    /// The first one: the stream, normed.
    Normed(Act),
    /// The result of the layer before, which has not joined the stream yet.
    Result(Act),
}

impl Decoder {
    /// Loads the weights and allocates buffers for steps of at most `step_tokens` tokens and `logits_rows` logits rows.
    pub fn load(
        spec: DecoderSpec,
        checkpoint: &Checkpoint,
        device: &mut dyn Device,
        (step_tokens, logits_rows): (usize, usize),
    ) -> Result<Self, LoadError> {
        let weights = DecoderWeights::load(&spec, checkpoint, device)?;
        let buffers = Buffers::alloc(device, &spec, step_tokens, logits_rows)?;
        Ok(Self {
            spec,
            weights,
            buffers,
        })
    }

    /// Computes a step. Returns the logits of the wanted rows, `[wanted, vocab]`, in their order. Of the last layer, only what those
    /// rows and later steps need is computed.
    pub fn forward(
        &self,
        device: &mut dyn Device,
        step: &StepTokens<'_>,
    ) -> Result<Act, DeviceError> {
        let last = self.weights.layers.len() - 1;
        let mut pending = self.begin(device, step.ids)?;
        for layer in 0..last {
            pending = self.layer(device, layer, pending, step.rows)?;
        }
        self.cache(device, last, pending, step.rows)?;
        let logits = self.buffers.logits;
        if step.wanted.is_empty() && !step.hidden {
            return Ok(logits);
        }
        self.attend(device, last, step.rows)?;
        let mut all_done = false;
        if !step.wanted.is_empty() {
            let stream = self.take_wanted(device, step)?;
            all_done = stream.residual == self.buffers.residual;
            let result = self.behind_attention(device, last, stream)?;
            let join = self.join(result, stream.residual, self.weights.final_norm);
            device.joined_linear(join, self.weights.head, stream.rows, logits)?;
        }
        if step.hidden {
            self.finish_all(device, step.ids.count(), all_done)?;
        }
        Ok(logits)
    }

    /// Where a step's logits are.
    pub fn logits(&self) -> Act {
        self.buffers.logits
    }

    /// The hidden states of all rows of the last step that wanted them, `[rows, hidden]`: the last layer's output, normed as for the head.
    pub fn hidden(&self) -> Act {
        self.buffers.hidden
    }

    /// The hidden states of all rows, in `hidden`: the last layer is computed for them, unless it was for their logits (`all_done`).
    fn finish_all(
        &self,
        device: &mut dyn Device,
        rows: usize,
        all_done: bool,
    ) -> Result<(), DeviceError> {
        let Buffers {
            residual,
            context,
            hidden,
            ..
        } = self.buffers;
        let (norm, eps) = (self.weights.final_norm, self.spec.eps);
        if all_done {
            return device.rms_norm(residual, norm, eps, rows, hidden);
        }
        let stream = Stream {
            context,
            residual,
            rows,
        };
        let last = self.weights.layers.len() - 1;
        let result = self.behind_attention(device, last, stream)?;
        device.add_rms_norm(result, residual, norm, eps, rows, hidden)
    }

    /// Takes all rows through all layers, without logits: for a device that watches what comes by.
    pub fn pass_all(
        &self,
        device: &mut dyn Device,
        ids: &[u32],
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        let mut pending = self.begin(device, Ids::Given(ids))?;
        for layer in 0..self.weights.layers.len() {
            pending = self.layer(device, layer, pending, rows)?;
        }
        Ok(())
    }

    /// The tokens in `residual`, and normed for the first layer in `hidden`.
    fn begin(&self, device: &mut dyn Device, ids: Ids<'_>) -> Result<Pending, DeviceError> {
        let Buffers {
            residual, hidden, ..
        } = self.buffers;
        let table = self.weights.embedding;
        match ids {
            Ids::Given(ids) => device.embed(table, ids, residual)?,
            Ids::Found(rows) => device.embed_found(table, rows, residual)?,
        }
        let norm = self.weights.layers[0].attention_norm;
        device.rms_norm(residual, norm, self.spec.eps, ids.count(), hidden)?;
        Ok(Pending::Normed(hidden))
    }

    /// A layer for all rows.
    fn layer(
        &self,
        device: &mut dyn Device,
        index: usize,
        pending: Pending,
        rows: &Rows,
    ) -> Result<Pending, DeviceError> {
        self.cache(device, index, pending, rows)?;
        self.attend(device, index, rows)?;
        let stream = Stream {
            context: self.buffers.context,
            residual: self.buffers.residual,
            rows: rows.positions.len(),
        };
        let result = self.behind_attention(device, index, stream)?;
        Ok(Pending::Result(result))
    }

    /// The wanted rows, in their order.
    fn take_wanted(
        &self,
        device: &mut dyn Device,
        step: &StepTokens<'_>,
    ) -> Result<Stream, DeviceError> {
        let Buffers {
            residual,
            context,
            wanted_residual,
            wanted_context,
            ..
        } = self.buffers;
        let rows = step.wanted.len();
        if step.wanted.iter().copied().eq(0..step.ids.count() as u32) {
            return Ok(Stream {
                context,
                residual,
                rows,
            });
        }
        device.take_rows(context, step.wanted, wanted_context)?;
        device.take_rows(residual, step.wanted, wanted_residual)?;
        Ok(Stream {
            context: wanted_context,
            residual: wanted_residual,
            rows,
        })
    }

    /// Queries, keys and values, normed and turned; keys and values go to the cache.
    fn cache(
        &self,
        device: &mut dyn Device,
        index: usize,
        pending: Pending,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        let Buffers { residual, qkv, .. } = self.buffers;
        let (spec, layer) = (&self.spec, &self.weights.layers[index]);
        let tokens = rows.positions.len();
        match pending {
            Pending::Normed(x) => device.linear(x, layer.qkv, tokens, qkv)?,
            Pending::Result(result) => {
                let join = self.join(result, residual, layer.attention_norm);
                device.joined_linear(join, layer.qkv, tokens, qkv)?;
            }
        }
        let (shape, rope) = (spec.attention(index), &spec.rope);
        match layer.head_norms {
            Some([query, key]) => {
                let eps = spec.eps;
                let norms = HeadNorms { query, key, eps };
                device.norm_rope_and_cache(qkv, norms, index, &shape, rope, rows)
            }
            None => device.rope_and_cache(qkv, index, &shape, rope, rows),
        }
    }

    /// What the heads see, in `context`.
    fn attend(
        &self,
        device: &mut dyn Device,
        index: usize,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        let Buffers { qkv, context, .. } = self.buffers;
        device.attention(qkv, index, &self.spec.attention(index), rows, context)
    }

    /// The rest of a layer: what attention saw joins the stream, then `down(silu(gate(x)) * up(x))` of the normed stream is the
    /// result of the layer. Returns where it is.
    fn behind_attention(
        &self,
        device: &mut dyn Device,
        index: usize,
        stream: Stream,
    ) -> Result<Act, DeviceError> {
        let Buffers {
            hidden, gate_up, ..
        } = self.buffers;
        let (layer, rows) = (&self.weights.layers[index], stream.rows);
        device.linear(stream.context, layer.attention_output, rows, hidden)?;
        let attended = self.post_norm(device, layer.attention_post_norm, rows)?;
        let join = self.join(attended, stream.residual, layer.mlp_norm);
        device.joined_linear(join, layer.gate_up, rows, gate_up)?;
        device.gated_linear(gate_up, layer.down, rows, hidden)?;
        self.post_norm(device, layer.mlp_post_norm, rows)
    }

    fn join(&self, result: Act, residual: Act, norm: Weight) -> Join {
        let eps = self.spec.eps;
        Join {
            result,
            residual,
            norm,
            eps,
        }
    }

    /// The result in `hidden`, normed where the family does so; returns where it is now.
    fn post_norm(
        &self,
        device: &mut dyn Device,
        norm: Option<Weight>,
        tokens: usize,
    ) -> Result<Act, DeviceError> {
        let Buffers {
            hidden,
            post_normed,
            ..
        } = self.buffers;
        match (norm, post_normed) {
            (Some(norm), Some(normed)) => {
                device.rms_norm(hidden, norm, self.spec.eps, tokens, normed)?;
                Ok(normed)
            }
            _ => Ok(hidden),
        }
    }
}
