//! Sliding windows per layer, as configurations spell them.

use crate::checkpoint::{CheckpointError, Fields};

/// One window per layer. `layer_types` decides where it stands (`sliding` is the window of a sliding layer), else `usual`.
pub(super) fn read(
    fields: &Fields<'_>,
    layers: usize,
    usual: impl Fn(usize) -> Option<usize>,
    sliding: Option<usize>,
) -> Result<Vec<Option<usize>>, CheckpointError> {
    let Some(types) = fields.texts("layer_types")? else {
        return Ok((0..layers).map(usual).collect());
    };
    if types.len() != layers {
        return Err(fields.unsupported(
            "layer_types",
            &format!("one entry for each of {layers} layers"),
        ));
    }
    let window = |kind: &&str| match (*kind, sliding) {
        ("full_attention", _) => Ok(None),
        ("sliding_attention", Some(window)) => Ok(Some(window)),
        ("sliding_attention", None) => {
            Err(fields.unsupported("sliding_window", "a size, as layer_types asks for"))
        }
        _ => Err(fields.unsupported("layer_types", "full_attention, sliding_attention")),
    };
    types.iter().map(window).collect()
}

/// Where the key is missing.
const QWEN_MAX_WINDOW_LAYERS: usize = 28;
const QWEN_WINDOW: usize = 4096;

/// Qwen's spelling: `sliding_window` counts only with `use_sliding_window`, and the first `max_window_layers` are full.
pub(super) fn read_qwen(
    fields: &Fields<'_>,
    layers: usize,
) -> Result<Vec<Option<usize>>, CheckpointError> {
    let given = fields.size_if("sliding_window")?;
    let window = match fields.flag("use_sliding_window")? {
        Some(true) if fields.has_key("sliding_window") => given,
        Some(true) => Some(QWEN_WINDOW),
        _ => None,
    };
    let full = fields
        .count_if("max_window_layers")?
        .unwrap_or(QWEN_MAX_WINDOW_LAYERS);
    read(
        fields,
        layers,
        |layer| window.filter(|_| layer >= full),
        window,
    )
}
