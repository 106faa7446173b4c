//! The forward pass of a decoder, for every family and every device: embed, then per layer attention and MLP around a
//! residual stream, then the head. What differs between models is in the `DecoderSpec`; what differs between devices is
//! behind `Device`.

use crate::checkpoint::Checkpoint;
use crate::error::LoadError;
use crate::spec::DecoderSpec;
use crate::weights::{DecoderWeights, LayerWeights};
use ropeteam_device::{Act, Device, DeviceError, Rows, Weight};

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
    /// `[T, hidden]`: normed input of attention and MLP, then their result.
    hidden: Act,
    /// `[T, hidden]`: a result normed once more; only where the family does so.
    post_normed: Option<Act>,
    /// `[T, (heads + 2 * kv_heads) * head_dim]`: queries, keys, values.
    qkv: Act,
    /// `[T, heads * head_dim]`: what the heads saw.
    context: Act,
    /// `[T, 2 * intermediate]`: gate and up.
    gate_up: Act,
    /// `[L, hidden]`: rows that want logits.
    wanted: Act,
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
            wanted: device.alloc(logits_rows, spec.hidden)?,
            logits: device.alloc(logits_rows, spec.vocab)?,
        })
    }
}

/// The tokens of one step.
pub(crate) struct StepTokens<'a> {
    /// Token ids, one per row.
    pub ids: &'a [u32],
    /// Where the rows belong.
    pub rows: &'a Rows,
    /// Rows whose logits are wanted.
    pub wanted: &'a [u32],
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

    /// Computes a step. Returns the logits of the wanted rows, `[wanted, vocab]`, in their order.
    pub fn forward(
        &self,
        device: &mut dyn Device,
        step: &StepTokens<'_>,
    ) -> Result<Act, DeviceError> {
        let (buffers, weights) = (&self.buffers, &self.weights);
        let (eps, tokens) = (self.spec.eps, step.ids.len());
        device.embed(weights.embedding, step.ids, buffers.residual)?;
        let first_norm = self.norm_before(0);
        device.rms_norm(buffers.residual, first_norm, eps, tokens, buffers.hidden)?;
        for (index, layer) in weights.layers.iter().enumerate() {
            let attended = self.attention(device, index, step.rows)?;
            self.join(device, attended, layer.mlp_norm, tokens)?;
            let mixed = self.mlp(device, layer, tokens)?;
            self.join(device, mixed, self.norm_before(index + 1), tokens)?;
        }
        if !step.wanted.is_empty() {
            device.take_rows(buffers.hidden, step.wanted, buffers.wanted)?;
            device.linear(
                buffers.wanted,
                weights.head,
                step.wanted.len(),
                buffers.logits,
            )?;
        }
        Ok(buffers.logits)
    }

    /// The norm in front of a layer; behind the last layer, that in front of the head.
    fn norm_before(&self, layer: usize) -> Weight {
        self.weights
            .layers
            .get(layer)
            .map_or(self.weights.final_norm, |layer| layer.attention_norm)
    }

    /// Adds a result to the residual stream and norms the sum: the input of what comes next, in `hidden`.
    fn join(
        &self,
        device: &mut dyn Device,
        result: Act,
        next_norm: Weight,
        tokens: usize,
    ) -> Result<(), DeviceError> {
        let Buffers {
            residual, hidden, ..
        } = self.buffers;
        device.add_rms_norm(result, residual, next_norm, self.spec.eps, tokens, hidden)
    }

    /// `output(attention(rope(norm(qkv(x)))))`, with x and the result in `hidden`.
    fn attention(
        &self,
        device: &mut dyn Device,
        index: usize,
        rows: &Rows,
    ) -> Result<Act, DeviceError> {
        let Buffers {
            hidden,
            qkv,
            context,
            ..
        } = self.buffers;
        let (spec, layer) = (&self.spec, &self.weights.layers[index]);
        let tokens = rows.positions.len();
        let shape = spec.attention(index);
        device.linear(hidden, layer.qkv, tokens, qkv)?;
        if let Some([query_norm, key_norm]) = layer.head_norms {
            device.head_norm(qkv, 0, spec.heads, query_norm, spec.eps, tokens)?;
            device.head_norm(
                qkv,
                spec.query_dim(),
                spec.kv_heads,
                key_norm,
                spec.eps,
                tokens,
            )?;
        }
        device.rope_and_cache(qkv, index, &shape, &spec.rope, rows)?;
        device.attention(qkv, index, &shape, rows, context)?;
        device.linear(context, layer.attention_output, tokens, hidden)?;
        self.post_norm(device, layer.attention_post_norm, tokens)
    }

    /// `down(silu(gate(x)) * up(x))`, with x and the result in `hidden`.
    fn mlp(
        &self,
        device: &mut dyn Device,
        layer: &LayerWeights,
        tokens: usize,
    ) -> Result<Act, DeviceError> {
        let Buffers {
            hidden, gate_up, ..
        } = self.buffers;
        device.linear(hidden, layer.gate_up, tokens, gate_up)?;
        device.gated_linear(gate_up, layer.down, tokens, hidden)?;
        self.post_norm(device, layer.mlp_post_norm, tokens)
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
