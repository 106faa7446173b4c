//! `quantization_config` as the compressed-tensors library writes it.

use super::grid::Int4Format;
use serde_json::{Value, json};

/// A byte per weight, a factor per output, activations rounded to int8 token by token.
pub(super) fn int8() -> Value {
    let mut activations = args(8, true, "token", None);
    activations["dynamic"] = Value::Bool(true);
    config("int-quantized", args(8, true, "channel", None), activations)
}

/// Four bits per weight, a factor and perhaps a zero point per group.
pub(super) fn int4(format: Int4Format) -> Value {
    let weights = args(4, format.symmetric, "group", Some(format.group));
    config("pack-quantized", weights, Value::Null)
}

fn args(bits: u32, symmetric: bool, strategy: &str, group: Option<usize>) -> Value {
    json!({
        "actorder": null,
        "block_structure": null,
        "dynamic": false,
        "group_size": group,
        "num_bits": bits,
        "observer": null,
        "observer_kwargs": {},
        "strategy": strategy,
        "symmetric": symmetric,
        "type": "int",
    })
}

fn config(format: &str, weights: Value, activations: Value) -> Value {
    let group = json!({
        "input_activations": activations,
        "output_activations": null,
        "targets": ["Linear"],
        "weights": weights,
    });
    json!({
        "config_groups": {"group_0": group},
        "format": format,
        "global_compression_ratio": null,
        "ignore": ["lm_head"],
        "kv_cache_scheme": null,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    })
}
