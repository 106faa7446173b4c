//! `quantization_config` of a config.json: which modules are quantised, and how their weights are stored.

use super::super::config::{Config, Fields};
use super::super::error::CheckpointError;
use super::targets::Target;
use ropeteam_device::Dtype;
use serde_json::Value;

/// The keys that it stands under, the younger first.
const SECTIONS: [&str; 2] = ["quantization_config", "compression_config"];

/// What of a model is quantised.
#[derive(Debug)]
pub(crate) struct Quantization {
    groups: Vec<(Vec<Target>, Scheme)>,
    ignore: Vec<Target>,
}

/// How the weights of one group of modules are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub storage: Storage,
    /// What has a factor of its own.
    pub span: Span,
    /// Without zero points.
    pub symmetric: bool,
}

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Signed bytes in `weight`.
    Bytes,
    /// So many bits each, in the 32-bit words of `weight_packed`.
    Words(u32),
}

/// What has a factor of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The whole matrix.
    Tensor,
    /// An output.
    Channel,
    /// So many inputs of an output.
    Group(usize),
}

impl Scheme {
    /// Last parts of the names of the tensors that stand for a weight; the first holds the numbers.
    pub fn parts(&self) -> &'static [&'static str] {
        match (self.storage, self.symmetric) {
            (Storage::Bytes, _) => &["weight", "weight_scale"],
            (Storage::Words(_), true) => &["weight_packed", "weight_scale", "weight_shape"],
            (Storage::Words(_), false) => &[
                "weight_packed",
                "weight_scale",
                "weight_shape",
                "weight_zero_point",
            ],
        }
    }

    /// What a device is given.
    pub fn given_dtype(&self) -> Dtype {
        match (self.storage, self.span) {
            (Storage::Words(4), _) => Dtype::Q4_1,
            (Storage::Words(_), Span::Group(_)) => Dtype::Q8_0,
            _ => Dtype::I8,
        }
    }

    /// Numbers in one element of the tensor that holds them.
    pub fn numbers_per_element(&self) -> u64 {
        match self.storage {
            Storage::Bytes => 1,
            Storage::Words(bits) => u64::from(32 / bits),
        }
    }
}

impl Quantization {
    /// Reads it; `None` where a configuration has none.
    pub fn read(config: &Config) -> Result<Option<Self>, CheckpointError> {
        let fields = config.fields();
        for section in SECTIONS {
            if let Some(section) = fields.section(section)? {
                return Self::from_section(&section).map(Some);
            }
        }
        Ok(None)
    }

    fn from_section(fields: &Fields<'_>) -> Result<Self, CheckpointError> {
        if fields.text("quant_method")? != Some("compressed-tensors") {
            return Err(fields.unsupported("quant_method", "compressed-tensors"));
        }
        if !matches!(
            fields.text("quantization_status")?,
            None | Some("compressed")
        ) {
            return Err(fields.unsupported("quantization_status", "compressed"));
        }
        refuse_if_set(fields, &["kv_cache_scheme", "transform_config"])?;
        if let Some(sparsity) = fields.section("sparsity_config")?
            && !matches!(sparsity.text("format")?, None | Some("dense"))
        {
            return Err(sparsity.unsupported("format", "dense"));
        }
        let format = fields.text("format")?;
        let Some(sections) = fields.section("config_groups")? else {
            return Err(fields.unsupported("config_groups", "an object of groups"));
        };
        let mut groups = Vec::new();
        for name in sections.keys() {
            if let Some(group) = sections.section(name)? {
                let targets = targets(&group, "targets")?;
                groups.push((targets, scheme(&group, fields, format)?));
            }
        }
        Ok(Self {
            groups,
            ignore: targets(fields, "ignore")?,
        })
    }

    /// How the matrix of `module` is stored, if it is quantised.
    pub fn scheme(&self, module: &str) -> Option<&Scheme> {
        let means = |targets: &[Target]| targets.iter().any(|target| target.matches(module));
        if means(&self.ignore) {
            return None;
        }
        let group = self.groups.iter().find(|(targets, _)| means(targets));
        group.map(|(_, scheme)| scheme)
    }
}

fn targets(fields: &Fields<'_>, field: &str) -> Result<Vec<Target>, CheckpointError> {
    let entries = fields.texts(field)?.unwrap_or_default();
    let parse = |entry: &str| {
        let wrong = |problem: String| fields.wrong(field, &problem, &Value::from(entry));
        Target::parse(entry).map_err(wrong)
    };
    entries.into_iter().map(parse).collect()
}

fn scheme(
    group: &Fields<'_>,
    whole: &Fields<'_>,
    format: Option<&str>,
) -> Result<Scheme, CheckpointError> {
    refuse_if_set(group, &["output_activations"])?;
    let Some(weights) = group.section("weights")? else {
        return Err(group.unsupported("weights", "quantised weights"));
    };
    if let Some(activations) = group.section("input_activations")? {
        check_activations(&activations)?;
    }
    let (holder, format) = match group.text("format")? {
        Some(own) => (group, Some(own)),
        None => (whole, format),
    };
    let bits = integers(&weights)?;
    let storage = match (format, bits) {
        (Some("int-quantized" | "naive-quantized"), 8) => Storage::Bytes,
        (Some("pack-quantized"), 4 | 8) => Storage::Words(bits),
        (Some("int-quantized" | "naive-quantized" | "pack-quantized"), _) => {
            return Err(weights.unsupported("num_bits", "8, and 4 in pack-quantized"));
        }
        _ => return Err(holder.unsupported("format", "int-quantized, pack-quantized")),
    };
    let symmetric = weights.flag("symmetric")?.unwrap_or(true);
    let span = span(&weights)?;
    if !symmetric && bits == 8 {
        return Err(weights.unsupported("symmetric", "true for 8 bits"));
    }
    if storage == Storage::Bytes && matches!(span, Span::Group(_)) {
        return Err(weights.unsupported("strategy", "channel, tensor for int-quantized"));
    }
    if !symmetric && span == Span::Tensor {
        return Err(weights.unsupported("symmetric", "true for the strategy tensor"));
    }
    Ok(Scheme {
        storage,
        span,
        symmetric,
    })
}

/// The bits of integers that are fixed in the file.
fn integers(weights: &Fields<'_>) -> Result<u32, CheckpointError> {
    if !matches!(weights.text("type")?, None | Some("int")) {
        return Err(weights.unsupported("type", "int"));
    }
    if !matches!(weights.value("dynamic"), None | Some(Value::Bool(false))) {
        return Err(weights.unsupported("dynamic", "false for weights"));
    }
    // Ordered by importance before quantising, but stored in place; another order needs `weight_g_idx`.
    let in_place = match weights.value("actorder") {
        None | Some(Value::Bool(false)) => true,
        Some(Value::String(order)) => matches!(order.as_str(), "weight" | "static"),
        Some(_) => false,
    };
    if !in_place {
        return Err(weights.unsupported("actorder", "null, \"weight\", \"static\""));
    }
    Ok(weights.size_if("num_bits")?.unwrap_or(8) as u32)
}

fn span(weights: &Fields<'_>) -> Result<Span, CheckpointError> {
    let group = match weights.value("group_size") {
        Some(size) if size.as_i64() == Some(-1) => None,
        _ => weights.size_if("group_size")?,
    };
    match (weights.text("strategy")?, group) {
        (Some("tensor"), None) => Ok(Span::Tensor),
        (Some("channel") | None, None) => Ok(Span::Channel),
        (Some("group") | None, Some(size)) if size.is_multiple_of(32) => Ok(Span::Group(size)),
        (Some("group") | None, _) => Err(weights.unsupported("group_size", "multiples of 32")),
        _ => Err(weights.unsupported("strategy", "tensor, channel, group")),
    }
}

/// Activations are quantised at run time here, in finer groups than any file asks for; fixed factors are refused.
fn check_activations(activations: &Fields<'_>) -> Result<(), CheckpointError> {
    if !matches!(activations.text("type")?, None | Some("int")) {
        return Err(activations.unsupported("type", "int"));
    }
    if activations.size_if("num_bits")?.unwrap_or(8) != 8 {
        return Err(activations.unsupported("num_bits", "8"));
    }
    if activations.value("dynamic") != Some(&Value::Bool(true)) {
        return Err(activations.unsupported("dynamic", "true"));
    }
    Ok(())
}

fn refuse_if_set(fields: &Fields<'_>, names: &[&str]) -> Result<(), CheckpointError> {
    match names.iter().find(|name| fields.value(name).is_some()) {
        Some(name) => Err(fields.unsupported(name, "null")),
        None => Ok(()),
    }
}
