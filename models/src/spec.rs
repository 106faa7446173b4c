//! A decoder as data: everything the forward pass needs to know about a model, and nothing about where it came from.
//! The families fill it in; `decoder` carries it out.

use crate::checkpoint::CheckpointError;
use crate::checkpoint::Fields;
use ropeteam_device::{AttentionShape, Rope};

/// Shape, variants and tensor names of one decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the MLP between its projections.
    pub intermediate: usize,
    /// Rows of the embedding and of the head.
    pub vocab: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// How positions turn into rotations.
    pub rope: Rope,
    /// Epsilon of every norm.
    pub eps: f32,
    /// One per layer: how many positions a row sees, its own included; `None`: all.
    pub windows: Vec<Option<usize>>,
    /// The head is the embedding table.
    pub tied_head: bool,
    /// Which projections have a bias.
    pub biases: Biases,
    /// What a layer's tensors are called.
    pub names: LayerNames,
    /// Longest sequence the positions are made for, with their scaling.
    pub max_positions: usize,
}

/// Which projections have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Query, key and value.
    pub qkv: bool,
    /// The attention's output.
    pub attention_output: bool,
    /// Gate, up and down.
    pub mlp: bool,
}

/// Names of a layer's modules below `model.layers.N.`; what has no name is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerNames {
    /// Norm before attention.
    pub attention_norm: &'static str,
    /// Query, key and value projections.
    pub qkv: [&'static str; 3],
    /// Norms of each query head and each key head, before the rotation.
    pub query_key_norms: Option<[&'static str; 2]>,
    /// Projection of the heads' outputs.
    pub attention_output: &'static str,
    /// Norm of the attention's result before it is added to the residual stream.
    pub attention_post_norm: Option<&'static str>,
    /// Norm before the MLP.
    pub mlp_norm: &'static str,
    /// Gate and up projections, apart or stacked in one tensor.
    pub gate_up: GateUp,
    /// Down projection.
    pub down: &'static str,
    /// Norm of the MLP's result before it is added to the residual stream.
    pub mlp_post_norm: Option<&'static str>,
}

/// A projection of a layer: matrices that read the same input, stacked along out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Projection {
    /// Names and outputs of its matrices.
    pub parts: Vec<(&'static str, usize)>,
    /// Inputs of each.
    pub inputs: usize,
    /// Whether each has a bias.
    pub bias: bool,
    /// The norm whose result it reads, if it reads one.
    pub norm: Option<&'static str>,
}

/// The projections of a layer, in the order in which they are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Projections {
    pub qkv: Projection,
    pub attention_output: Projection,
    pub gate_up: Projection,
    pub down: Projection,
}

impl Projections {
    /// All of them.
    pub fn in_order(self) -> [Projection; 4] {
        [self.qkv, self.attention_output, self.gate_up, self.down]
    }
}

/// How gate and up projections are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateUp {
    /// Two tensors.
    Apart(&'static str, &'static str),
    /// One tensor, gate's rows first.
    Stacked(&'static str),
}

impl LayerNames {
    /// The names that most families share.
    pub const PLAIN: LayerNames = LayerNames {
        attention_norm: "input_layernorm",
        qkv: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        query_key_norms: None,
        attention_output: "self_attn.o_proj",
        attention_post_norm: None,
        mlp_norm: "post_attention_layernorm",
        gate_up: GateUp::Apart("mlp.gate_proj", "mlp.up_proj"),
        down: "mlp.down_proj",
        mlp_post_norm: None,
    };
}

/// Name of the embedding table.
pub const EMBEDDING: &str = "model.embed_tokens.weight";
/// Name of the last norm.
pub const FINAL_NORM: &str = "model.norm.weight";
/// Name of the head of a model that is not tied.
pub const HEAD: &str = "lm_head.weight";

/// What of a decoder's shape a configuration may leave open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapeDefaults {
    /// Elements per head; `None`: hidden size over heads.
    pub head_dim: Option<usize>,
    /// Epsilon of the norms.
    pub eps: f64,
}

/// The sizes that every decoder has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    pub hidden: usize,
    pub intermediate: usize,
    pub vocab: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub eps: f32,
    pub tied_head: bool,
}

/// More layers than any model has; keeps a damaged number from naming endless tensors.
const MAX_LAYERS: usize = 4096;

impl Shape {
    /// Reads the sizes and checks that they fit together.
    pub(crate) fn read(
        fields: &Fields<'_>,
        defaults: ShapeDefaults,
    ) -> Result<Self, CheckpointError> {
        let hidden = fields.size("hidden_size")?;
        let layers = fields.size("num_hidden_layers")?;
        if layers > MAX_LAYERS {
            return Err(fields.unsupported("num_hidden_layers", &format!("at most {MAX_LAYERS}")));
        }
        let heads = fields.size("num_attention_heads")?;
        let kv_heads = fields.size_if("num_key_value_heads")?.unwrap_or(heads);
        if heads % kv_heads != 0 {
            return Err(fields.unsupported("num_key_value_heads", &format!("a divisor of {heads}")));
        }
        let head_dim = match fields.size_if("head_dim")?.or(defaults.head_dim) {
            Some(head_dim) => head_dim,
            None if hidden % heads == 0 => hidden / heads,
            None => {
                return Err(fields.unsupported("hidden_size", &format!("a multiple of {heads}")));
            }
        };
        if head_dim % 2 != 0 {
            return Err(fields.unsupported("head_dim", "an even number"));
        }
        let eps = fields.positive("rms_norm_eps")?.unwrap_or(defaults.eps) as f32;
        Ok(Self {
            hidden,
            intermediate: fields.size("intermediate_size")?,
            vocab: fields.size("vocab_size")?,
            layers,
            heads,
            kv_heads,
            head_dim,
            eps,
            tied_head: fields.flag("tie_word_embeddings")?.unwrap_or(false),
        })
    }
}

impl DecoderSpec {
    /// A plain decoder of that shape: norms before each half of a layer, no bias, no window.
    pub(crate) fn plain(shape: Shape, rope: Rope, max_positions: usize) -> Self {
        Self {
            hidden: shape.hidden,
            intermediate: shape.intermediate,
            vocab: shape.vocab,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            rope,
            eps: shape.eps,
            windows: vec![None; shape.layers],
            tied_head: shape.tied_head,
            biases: Biases::default(),
            names: LayerNames::PLAIN,
            max_positions,
        }
    }

    /// Decoder layers.
    pub fn layers(&self) -> usize {
        self.windows.len()
    }

    /// Columns of the q part of a qkv row.
    pub fn query_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of the k part of a qkv row, and of the v part.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Whether the results of attention and MLP are normed before they join the residual stream.
    pub fn has_post_norms(&self) -> bool {
        self.names.attention_post_norm.is_some() || self.names.mlp_post_norm.is_some()
    }

    /// Shape of a layer's attention.
    pub fn attention(&self, layer: usize) -> AttentionShape {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            window: self.windows[layer],
        }
    }

    /// The projections of each layer.
    pub(crate) fn projections(&self) -> Projections {
        let (names, biases) = (&self.names, &self.biases);
        let [query, key, value] = names.qkv;
        Projections {
            qkv: Projection {
                parts: vec![
                    (query, self.query_dim()),
                    (key, self.kv_dim()),
                    (value, self.kv_dim()),
                ],
                inputs: self.hidden,
                bias: biases.qkv,
                norm: Some(names.attention_norm),
            },
            attention_output: Projection {
                parts: vec![(names.attention_output, self.hidden)],
                inputs: self.query_dim(),
                bias: biases.attention_output,
                norm: None,
            },
            gate_up: Projection {
                parts: match names.gate_up {
                    GateUp::Apart(gate, up) => {
                        vec![(gate, self.intermediate), (up, self.intermediate)]
                    }
                    GateUp::Stacked(both) => vec![(both, 2 * self.intermediate)],
                },
                inputs: self.hidden,
                bias: biases.mlp,
                norm: Some(names.mlp_norm),
            },
            down: Projection {
                parts: vec![(names.down, self.hidden)],
                inputs: self.intermediate,
                bias: biases.mlp,
                norm: None,
            },
        }
    }

    /// Weights of the whole model, the tied head counted once.
    pub fn parameters(&self) -> u64 {
        let size = |n: usize| n as u64;
        let names = &self.names;
        let tables = size(self.vocab) * size(self.hidden) * if self.tied_head { 1 } else { 2 };
        let qkv_dim = size(self.query_dim() + 2 * self.kv_dim());
        let mut layer = qkv_dim * size(self.hidden) + size(self.query_dim()) * size(self.hidden);
        layer += 3 * size(self.hidden) * size(self.intermediate);
        let post_norms = [names.attention_post_norm, names.mlp_post_norm];
        layer += size(self.hidden) * (2 + size(post_norms.iter().flatten().count()));
        layer += names.query_key_norms.map_or(0, |_| 2 * size(self.head_dim));
        layer += if self.biases.qkv { qkv_dim } else { 0 };
        layer += if self.biases.attention_output {
            size(self.hidden)
        } else {
            0
        };
        layer += if self.biases.mlp {
            size(2 * self.intermediate + self.hidden)
        } else {
            0
        };
        tables + size(self.layers()) * layer + size(self.hidden)
    }
}
