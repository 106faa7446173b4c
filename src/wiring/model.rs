//! Finds a real model, looks at it and prepares its device. The weights are read when the device starts.

use super::build::{self, Recipe};
use super::sizing::{Sizes, bytes, sizes};
use super::{Footprint, Loaded, defaults, texts};
use crate::config::{Config, Dtype, ModelConfig};
use crate::devices::{self, DeviceOptions};
use crate::http::state::ModelCard;
use crate::start_error::StartError;
use ropeteam_actors::EngineParts;
use ropeteam_device::Precision;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_models::source::{self, Located, Places};
use ropeteam_models::{Checkpoint, DecoderSpec, LoadError, ModelInfo, families};
use std::sync::Arc;

/// The parts of a server for the configured model.
///
/// # Errors
/// What is wrong with the model, the device or the memory.
pub fn load(config: &Config) -> Result<Loaded, StartError> {
    let model = &config.model_config;
    let entry = devices::find(&model.device)?;
    let Located { path, name } = find(&model.model)?;
    let checkpoint = Checkpoint::open(&path).map_err(LoadError::from)?;
    let spec = families::spec(checkpoint.config()).map_err(LoadError::from)?;
    let info = ModelInfo::gather(&checkpoint, &spec).map_err(LoadError::from)?;
    let texts = texts::read(&checkpoint, model)?;
    let options = DeviceOptions {
        threads: model.threads,
        precision: precision(model, &info),
    };
    let device = (entry.open)(&options).map_err(LoadError::from)?.info();
    let sizes = sizes(model, &spec, options.precision, device.free_bytes)?;
    let mask = texts.codec.column_mask(spec.vocab);
    let recipe = Recipe {
        path,
        device: entry,
        options,
        sizes,
        mask,
    };
    let (device_spec, first_life) = build::device(recipe, &config.debug_config);
    Ok(Loaded {
        parts: EngineParts {
            codec: Arc::new(texts.codec),
            eos_ids: eos_ids(&info, &texts.end_ids),
            devices: vec![device_spec],
        },
        chat: texts.chat,
        model: ModelCard {
            names: vec![model.served_name.clone().unwrap_or_else(|| name.clone())],
            root: name,
            revision: None,
            dtype: dtype_name(options.precision).to_owned(),
            device_type: entry.kind.to_owned(),
            max_model_len: sizes.max_model_len,
        },
        defaults: match model.generation_config {
            true => defaults::sampling(&info.sampling)?,
            false => SamplingParams::default(),
        },
        footprint: footprint(device.name, &spec, options.precision, sizes),
        first_life: Some(first_life),
    })
}

/// Those of the configuration files first, each once.
fn eos_ids(info: &ModelInfo, further: &[TokenId]) -> Vec<TokenId> {
    let mut ids = info.eos_ids.clone();
    ids.extend(further.iter().filter(|id| !info.eos_ids.contains(id)));
    ids
}

fn find(model: &str) -> Result<Located, StartError> {
    let located = Places::from_env().and_then(|places| source::locate(Some(model), &places));
    located.map_err(|error| StartError::Model(error.to_string()))
}

fn precision(config: &ModelConfig, info: &ModelInfo) -> Precision {
    match config.dtype {
        Dtype::Auto => info.default_precision(),
        Dtype::F32 => Precision::F32,
        Dtype::Bf16 => Precision::Bf16,
    }
}

fn dtype_name(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "float32",
        Precision::Bf16 => "bfloat16",
        Precision::Stored => "stored",
        Precision::Int8 => "int8",
        Precision::Int4 => "int4",
    }
}

fn footprint(device: String, spec: &DecoderSpec, precision: Precision, sizes: Sizes) -> Footprint {
    Footprint {
        device,
        dtype: dtype_name(precision),
        weights: bytes(spec.weight_bytes(precision)),
        kv_memory: bytes(sizes.kv_bytes(spec, precision)),
        sizes,
    }
}
