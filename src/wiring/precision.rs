//! What weights are held in, from the options and the checkpoint.

use crate::config::{Dtype, KvDtype, ModelConfig, Quantize};
use crate::devices::DeviceEntry;
use crate::start_error::StartError;
use ropeteam_device::{Dtype as Stored, Float, KvPrecision, Precision};
use ropeteam_models::{DecoderSpec, ModelInfo};

/// What the device holds weights in.
///
/// # Errors
/// Options that contradict each other or that the device does not offer.
pub fn precision(
    config: &ModelConfig,
    device: &DeviceEntry,
    info: &ModelInfo,
) -> Result<Precision, StartError> {
    check_device(config, device)?;
    Ok(match (config.quantize, config.dtype) {
        (Quantize::Int8 | Quantize::Int4, Dtype::F32) => {
            let what = "quantize: int8 and int4 weights are multiplied by int8 activations, which --dtype f32 rules out; leave one of them out";
            return Err(StartError::Usage(what.to_owned()));
        }
        (Quantize::Int8, _) => Precision::Int8,
        (Quantize::Int4, _) => Precision::Int4,
        (_, Dtype::F32) => Precision::F32,
        (Quantize::None, Dtype::Bf16 | Dtype::F16) => Precision::Bf16,
        (Quantize::None, Dtype::Auto) if !device.f32 => Precision::Bf16,
        (Quantize::Auto, _) if !device.f32 => stored_or_widened(info),
        (Quantize::None, Dtype::Auto) => match info.default_precision() {
            Precision::F32 => Precision::F32,
            _ => Precision::Bf16,
        },
        (Quantize::Auto, Dtype::Bf16 | Dtype::F16) => Precision::Stored,
        (Quantize::Auto, Dtype::Auto) => info.default_precision(),
    })
}

/// What the device holds keys and values in, beside such weights.
///
/// # Errors
/// A KV cache in bf16 beside weights in f32, or one that the device does not offer.
pub fn kv_precision(
    config: &ModelConfig,
    device: &DeviceEntry,
    weights: Precision,
) -> Result<KvPrecision, StartError> {
    match (config.kv_dtype, weights) {
        (KvDtype::Int8, _) if !device.rounds => Err(StartError::Usage(format!(
            "kv_dtype: int8 is not offered on {}; there is: auto, bf16",
            device.name
        ))),
        (KvDtype::Int8, _) => Ok(KvPrecision::Int8),
        (KvDtype::Bf16, Precision::F32) => Err(StartError::Usage(
            "kv_dtype: weights in f32 go with a KV cache in f32 or int8; leave it out".to_owned(),
        )),
        _ => Ok(KvPrecision::ByWeights),
    }
}

/// What a device cannot do, told before anything is opened.
fn check_device(config: &ModelConfig, device: &DeviceEntry) -> Result<(), StartError> {
    let name = device.name;
    let refused = |what: String| Err(StartError::Usage(what));
    match (config.dtype, config.quantize) {
        (Dtype::F32, _) if !device.f32 => refused(format!(
            "dtype: f32 is not offered on {name}; there is: auto, bf16, f16"
        )),
        (Dtype::F16, _) if device.f32 => refused(format!(
            "dtype: f16 is not offered on {name}; there is: auto, f32, bf16"
        )),
        (_, Quantize::Int8 | Quantize::Int4) if !device.rounds => refused(format!(
            "quantize: {name} does not round weights at load; write a quantised model with `ropeteam quantize` first"
        )),
        _ => Ok(()),
    }
}

/// What a device without four-bit products holds: int8 stays, fewer bits are widened.
fn stored_or_widened(info: &ModelInfo) -> Precision {
    use Stored::{BF16, F16, F32, I8};
    let stays = |dtype| matches!(dtype, BF16 | F16 | F32 | I8);
    match info.elements.iter().all(|(dtype, _)| stays(*dtype)) {
        true => Precision::Stored,
        false => Precision::Bf16,
    }
}

/// Numbers of 16 bits, on a device that has a choice.
pub fn half(config: &ModelConfig) -> Float {
    match config.dtype {
        Dtype::F16 => Float::F16,
        _ => Float::Bf16,
    }
}

/// A model's weights on a device.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// What the device holds them in.
    pub precision: Precision,
    /// Numbers of 16 bits.
    pub half: Float,
    /// The model.
    pub info: &'a ModelInfo,
}

impl Weights<'_> {
    /// What most of them are held in, by the name that servers report.
    pub fn dtype(&self) -> &'static str {
        let most = self.info.elements.first().map(|(dtype, _)| *dtype);
        match (self.precision, most) {
            (Precision::F32, _) => "float32",
            (Precision::Int8, _) => "int8",
            (Precision::Int4, _) => "int4",
            (Precision::Stored, Some(Stored::I8 | Stored::Q8_0 | Stored::Q6_K)) => "int8",
            (Precision::Stored, Some(Stored::Q4_0 | Stored::Q4_1 | Stored::Q4_K)) => "int4",
            (Precision::Bf16 | Precision::Stored, _) => match self.half {
                Float::F16 => "float16",
                _ => "bfloat16",
            },
        }
    }

    /// Bytes that they take.
    pub fn bytes(&self, spec: &DecoderSpec) -> u64 {
        spec.weight_bytes(self.precision, &self.info.elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Inputs, resolve};
    use ropeteam_models::checkpoint::Checkpoint;
    use ropeteam_models::families;
    use std::path::Path;

    fn chosen(flags: &[(&'static str, &str)]) -> (ModelConfig, &'static DeviceEntry) {
        let flags = flags
            .iter()
            .map(|(key, word)| (*key, (*word).to_owned()))
            .collect();
        let resolved = resolve(Inputs {
            flags,
            ..Inputs::default()
        });
        let config = resolved.expect("good flags").config.model_config;
        let device = crate::devices::find(&config.device).expect("a device");
        (config, device.entry)
    }

    fn found(model: &str, flags: &[(&'static str, &str)]) -> Result<Precision, String> {
        let (config, device) = chosen(flags);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
        let checkpoint = Checkpoint::open(&folder.join(model)).expect("fixture");
        let spec = families::spec(checkpoint.config()).expect("fixture");
        let info = ModelInfo::gather(&checkpoint, &spec).expect("fixture");
        precision(&config, device, &info).map_err(|error| error.to_string())
    }

    #[test]
    fn options_and_file_together_decide() {
        let check = |model, flags: &[_], expected| assert_eq!(found(model, flags), Ok(expected));
        check("llama", &[], Precision::F32);
        check("llama/bf16", &[], Precision::Stored);
        check("llama/bf16", &[("quantize", "none")], Precision::Bf16);
        check("llama", &[("quantize", "none")], Precision::F32);
        check("llama", &[("device", "ascend")], Precision::Stored);
        check("llama/bf16", &[("dtype", "f32")], Precision::F32);
        check("llama", &[("quantize", "int8")], Precision::Int8);
        check(
            "llama",
            &[("quantize", "int4"), ("dtype", "bf16")],
            Precision::Int4,
        );
    }

    #[test]
    fn numbers_of_16_bits_are_called_by_their_type() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny/llama/bf16");
        let checkpoint = Checkpoint::open(&folder).expect("fixture");
        let spec = families::spec(checkpoint.config()).expect("fixture");
        let info = ModelInfo::gather(&checkpoint, &spec).expect("fixture");
        for (word, name) in [("f16", "float16"), ("bf16", "bfloat16")] {
            let (config, _) = chosen(&[("device", "ascend"), ("dtype", word)]);
            let weights = Weights {
                precision: Precision::Stored,
                half: half(&config),
                info: &info,
            };
            assert_eq!(weights.dtype(), name);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let told = |flags: &[_]| found("llama", flags).unwrap_err();
        assert!(told(&[("quantize", "int8"), ("dtype", "f32")]).starts_with("quantize: "));
        assert!(told(&[("dtype", "f16")]).starts_with("dtype: f16 is not offered on cpu"));
        let on_npu = [("device", "ascend:0"), ("dtype", "f32")];
        assert!(told(&on_npu).starts_with("dtype: f32 is not offered on ascend"));
        let on_npu = [("device", "ascend"), ("quantize", "int8")];
        assert!(told(&on_npu).contains("ropeteam quantize"));
    }

    #[test]
    fn keys_and_values_go_with_the_weights() {
        let found = |device: &str, word: &str, weights| {
            let (config, device) = chosen(&[("device", device), ("kv_dtype", word)]);
            kv_precision(&config, device, weights).map_err(|error| error.to_string())
        };
        let (by_weights, int8) = (Ok(KvPrecision::ByWeights), Ok(KvPrecision::Int8));
        assert_eq!(found("cpu", "auto", Precision::F32), by_weights);
        assert_eq!(found("cpu", "bf16", Precision::Int4), by_weights);
        assert_eq!(found("cpu", "int8", Precision::Bf16), int8);
        let told = found("cpu", "bf16", Precision::F32).unwrap_err();
        assert!(told.starts_with("kv_dtype: weights in f32"), "{told}");
        let told = found("ascend", "int8", Precision::Bf16).unwrap_err();
        assert!(
            told.starts_with("kv_dtype: int8 is not offered on ascend"),
            "{told}"
        );
    }
}
