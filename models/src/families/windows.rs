//! Sliding windows per layer, as configurations spell them.

use crate::checkpoint::{CheckpointError, Fields};

/// One window per layer. `layer_types` decides where it stands (`sliding` is the window of a sliding layer), else `usual`.
fn read(
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

/// For families without windows: `layer_types` may be there, but only to say so.
pub(super) fn refuse(fields: &Fields<'_>) -> Result<(), CheckpointError> {
    only(fields, "full_attention")
}

/// One window on all layers, or none. As transformers' Mistral does not read `layer_types`, it must not say otherwise.
pub(super) fn read_uniform(
    fields: &Fields<'_>,
    layers: usize,
    window: Option<usize>,
) -> Result<Vec<Option<usize>>, CheckpointError> {
    if window.is_some() {
        only(fields, "sliding_attention")?;
    }
    Ok(vec![window; layers])
}

fn only(fields: &Fields<'_>, kind: &str) -> Result<(), CheckpointError> {
    match fields.texts("layer_types")? {
        Some(types) if types.iter().any(|&found| found != kind) => {
            Err(fields.unsupported("layer_types", &format!("{kind} on all layers")))
        }
        _ => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Config;
    use std::path::Path;

    fn qwen(text: &str) -> Result<Vec<Option<usize>>, CheckpointError> {
        read_qwen(&Config::parse(Path::new("config.json"), text)?.fields(), 3)
    }

    #[test]
    fn qwens_window_counts_only_when_it_is_switched_on() {
        let off = r#"{"sliding_window": 16, "use_sliding_window": false, "max_window_layers": 1}"#;
        assert_eq!(qwen(off).unwrap(), [None; 3]);
        let on = r#"{"sliding_window": 16, "use_sliding_window": true, "max_window_layers": 1}"#;
        assert_eq!(qwen(on).unwrap(), [None, Some(16), Some(16)]);
        let everywhere =
            r#"{"sliding_window": 16, "use_sliding_window": true, "max_window_layers": 0}"#;
        assert_eq!(qwen(everywhere).unwrap(), [Some(16); 3]);
    }

    #[test]
    fn layer_types_decide_where_the_window_stands() {
        let types =
            r#""layer_types": ["sliding_attention", "full_attention", "sliding_attention"]"#;
        let on = format!(r#"{{"sliding_window": 16, "use_sliding_window": true, {types}}}"#);
        assert_eq!(qwen(&on).unwrap(), [Some(16), None, Some(16)]);
        let without_size = format!("{{{types}}}");
        assert!(
            qwen(&without_size)
                .unwrap_err()
                .to_string()
                .contains("sliding_window")
        );
        for wrong in [
            r#"{"layer_types": ["full_attention"]}"#,
            r#"{"layer_types": ["linear_attention", "x", "y"]}"#,
        ] {
            assert!(qwen(wrong).unwrap_err().to_string().contains("layer_types"));
        }
    }
}
