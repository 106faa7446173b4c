//! The model families: one file each turns a configuration into a `DecoderSpec`. This table is the only place that lists them.

mod glm;
mod glm4;
mod llama;
mod mistral;
mod qwen2;
mod qwen3;
mod refusals;
mod windows;

use crate::checkpoint::{CheckpointError, Config};
use crate::spec::DecoderSpec;

/// A family: its names, and how its configuration is read.
struct Family {
    /// As in `architectures` of config.json.
    architecture: &'static str,
    /// As in `model_type`, which stands alone in some files.
    model_type: &'static str,
    spec: fn(&Config) -> Result<DecoderSpec, CheckpointError>,
}

const FAMILIES: [Family; 6] = [
    Family {
        architecture: "LlamaForCausalLM",
        model_type: "llama",
        spec: llama::spec,
    },
    Family {
        architecture: "MistralForCausalLM",
        model_type: "mistral",
        spec: mistral::spec,
    },
    Family {
        architecture: "Qwen2ForCausalLM",
        model_type: "qwen2",
        spec: qwen2::spec,
    },
    Family {
        architecture: "Qwen3ForCausalLM",
        model_type: "qwen3",
        spec: qwen3::spec,
    },
    Family {
        architecture: "GlmForCausalLM",
        model_type: "glm",
        spec: glm::spec,
    },
    Family {
        architecture: "Glm4ForCausalLM",
        model_type: "glm4",
        spec: glm4::spec,
    },
];

/// Reads the decoder that a configuration describes.
///
/// # Errors
/// An architecture that is not in the table, fields that are missing, and fields that ask for what is not built.
pub fn spec(config: &Config) -> Result<DecoderSpec, CheckpointError> {
    let family = find(config)?;
    refusals::check(&config.fields())?;
    (family.spec)(config)
}

/// The architecture's name, as the table has it.
///
/// # Errors
/// An architecture that is not in the table.
pub fn architecture(config: &Config) -> Result<&'static str, CheckpointError> {
    find(config).map(|family| family.architecture)
}

fn find(config: &Config) -> Result<&'static Family, CheckpointError> {
    let fields = config.fields();
    let names = fields.texts("architectures")?.unwrap_or_default();
    let model_type = fields.text("model_type")?;
    let found = match names.first() {
        Some(name) => FAMILIES.iter().find(|family| family.architecture == *name),
        None => FAMILIES
            .iter()
            .find(|family| Some(family.model_type) == model_type),
    };
    found.ok_or_else(|| CheckpointError::UnknownArchitecture {
        file: config.file().to_path_buf(),
        architecture: names
            .first()
            .copied()
            .or(model_type)
            .unwrap_or("(none)")
            .to_owned(),
        known: FAMILIES
            .each_ref()
            .map(|family| family.architecture)
            .join(", "),
    })
}
