//! Finds a real model, looks at it and prepares its device. The weights are read when the device starts.

use super::build::{Base, Hooks, ModelRecipe, Recipe};
use super::isolation;
use super::precision::{Weights, half, kv_precision, precision};
use super::sizing::{Memory, Sizes, bytes, max_input_len, max_output_len, sizes};
use super::{Footprint, Loaded, defaults, texts};
use crate::config::{Config, ModelConfig};
use crate::devices::{self, DeviceOptions};
use crate::http::state::ModelCard;
use crate::start_error::StartError;
use ropeteam_actors::EngineParts;
use ropeteam_device::DeviceError;
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
    let chosen = devices::find(&model.device)?;
    let entry = chosen.entry;
    let Located { path, name } = find(&model.model)?;
    let checkpoint = Checkpoint::open(&path).map_err(LoadError::from)?;
    let spec = families::spec(checkpoint.config()).map_err(LoadError::from)?;
    let info = ModelInfo::gather(&checkpoint, &spec).map_err(LoadError::from)?;
    let texts = texts::read(&checkpoint, model)?;
    let weights = Weights {
        precision: precision(model, entry, &info)?,
        half: half(model),
        info: &info,
    };
    let kv = kv_precision(model, entry, weights.precision)?;
    let options = |number| DeviceOptions {
        threads: threads_each(model),
        precision: weights.precision,
        kv,
        half: half(model),
        number,
        step_timeout_ms: config.server_config.step_timeout_ms,
        graphs: model.npu_graphs,
    };
    let numbers = chosen.counted(model.device_count)?;
    let block_size = model.kv_block_size.unwrap_or(entry.block_size);
    let kv_shape = spec.kv_shape(1, block_size as usize);
    // All devices have the same sizes, so the fullest one decides; those of one kind without numbers share its memory.
    let mut memory = Memory {
        free: u64::MAX,
        block_size,
        kv_block: 1,
    };
    let mut names = Vec::new();
    let mut broken = None;
    for number in &numbers {
        let device = match (entry.open)(&options(*number)) {
            Ok(device) => device,
            Err(error @ DeviceError::Unavailable(_)) => return Err(LoadError::from(error).into()),
            Err(error) => {
                // What is not installed or asked for wrongly does not mend itself; a chip that is out of order may, and its life is
                // tried again.
                let what = format!("{}:{number}: {error}", entry.name);
                tracing::warn!("{what}; what it holds is taken to be as with the others");
                broken = broken.or(Some(what));
                continue;
            }
        };
        let info = device.info();
        memory.free = memory.free.min(info.free_bytes);
        memory.kv_block = memory.kv_block.max(device.kv_block_bytes(&kv_shape));
        names.push(info.name);
    }
    if let Some(what) = broken.filter(|_| names.is_empty()) {
        return Err(StartError::Device(what));
    }
    names.dedup();
    if !entry.numbered {
        memory.free /= numbers.len().max(1) as u64;
    }
    let sizes = sizes(model, &spec, &weights, memory)?;
    let mask = texts.codec.column_mask(spec.vocab);
    let eos_ids = eos_ids(&info, &texts.end_ids);
    let recipes = numbers.iter().map(|number| Recipe {
        base: Base::Model(ModelRecipe {
            path: path.clone(),
            device: entry.name.to_owned(),
            options: options(*number),
            sizes,
            mask: mask.clone(),
            eos_ids: eos_ids.clone(),
        }),
        hooks: Hooks::from(&config.debug_config),
    });
    let devices = isolation::devices(recipes, config)?;
    Ok(Loaded {
        parts: EngineParts {
            codec: Arc::new(texts.codec),
            eos_ids,
            devices,
        },
        chat: texts.chat,
        special: texts.special,
        model: ModelCard {
            names: vec![model.served_name.clone().unwrap_or_else(|| name.clone())],
            root: name,
            revision: None,
            dtype: weights.dtype().to_owned(),
            device_type: entry.name.to_owned(),
            max_model_len: sizes.max_model_len,
            max_input_len: max_input_len(model, sizes.max_model_len),
            max_output_len: max_output_len(model, sizes.max_model_len),
            hidden_size: info.hidden_size,
        },
        defaults: match model.generation_config {
            true => defaults::sampling(&info.sampling)?,
            false => SamplingParams::default(),
        },
        footprint: footprint(names.join("; "), &spec, &weights, sizes),
        files: Some(path.clone()),
    })
}

/// Threads of each device; all of them share the configured ones, or the cores.
fn threads_each(model: &ModelConfig) -> Option<usize> {
    if model.device_count == 1 {
        return model.threads;
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let all = model.threads.unwrap_or_else(cores);
    Some((all / usize::from(model.device_count)).max(1))
}

/// Those of the configuration files first, each once.
fn eos_ids(info: &ModelInfo, further: &[TokenId]) -> Vec<TokenId> {
    let mut ids = info.eos_ids.clone();
    ids.extend(further.iter().filter(|id| !info.eos_ids.contains(id)));
    ids
}

/// Finds a model by its name or path; it may be downloaded.
///
/// # Errors
/// Where it was looked for.
pub fn find(model: &str) -> Result<Located, StartError> {
    let located = Places::from_env().and_then(|places| source::locate(Some(model), &places));
    located.map_err(|error| StartError::Model(error.to_string()))
}

fn footprint(device: String, spec: &DecoderSpec, weights: &Weights<'_>, sizes: Sizes) -> Footprint {
    Footprint {
        device,
        dtype: weights.dtype(),
        weights: bytes(weights.bytes(spec)),
        kv_memory: bytes(sizes.kv_bytes()),
        sizes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Inputs, resolve};

    fn block_bytes(kv_dtype: &str) -> u64 {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny/llama");
        let flags = [("model", model), ("dtype", "bf16"), ("kv_dtype", kv_dtype)];
        let resolved = resolve(Inputs {
            flags: flags.map(|(key, word)| (key, word.to_owned())).into(),
            ..Inputs::default()
        });
        let loaded = load(&resolved.expect("good flags").config).expect("fixture");
        loaded.footprint.sizes.block_bytes
    }

    #[test]
    fn the_device_is_opened_with_the_numbers_asked_for() {
        let (bf16, int8) = (block_bytes("auto"), block_bytes("int8"));
        assert!(int8 < bf16 * 3 / 4, "{int8} of {bf16} bytes");
    }
}
