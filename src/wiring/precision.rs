//! What weights are held in, from the options and the checkpoint.

use crate::config::{Dtype, KvDtype, ModelConfig, Quantize};
use crate::start_error::StartError;
use ropeteam_device::{Dtype as Stored, KvPrecision, Precision};
use ropeteam_models::{DecoderSpec, ModelInfo};

/// What the device holds weights in.
///
/// # Errors
/// Options that contradict each other.
pub fn precision(config: &ModelConfig, info: &ModelInfo) -> Result<Precision, StartError> {
    Ok(match (config.quantize, config.dtype) {
        (Quantize::Int8 | Quantize::Int4, Dtype::F32) => {
            let what = "quantize: int8 and int4 weights are multiplied by int8 activations, which --dtype f32 rules out; leave one of them out";
            return Err(StartError::Usage(what.to_owned()));
        }
        (Quantize::Int8, _) => Precision::Int8,
        (Quantize::Int4, _) => Precision::Int4,
        (_, Dtype::F32) => Precision::F32,
        (Quantize::None, Dtype::Bf16) => Precision::Bf16,
        (Quantize::None, Dtype::Auto) => match info.default_precision() {
            Precision::F32 => Precision::F32,
            _ => Precision::Bf16,
        },
        (Quantize::Auto, Dtype::Bf16) => Precision::Stored,
        (Quantize::Auto, Dtype::Auto) => info.default_precision(),
    })
}

/// What the device holds keys and values in, beside such weights.
///
/// # Errors
/// A KV cache in bf16 beside weights in f32.
pub fn kv_precision(config: &ModelConfig, weights: Precision) -> Result<KvPrecision, StartError> {
    match (config.kv_dtype, weights) {
        (KvDtype::Int8, _) => Ok(KvPrecision::Int8),
        (KvDtype::Bf16, Precision::F32) => Err(StartError::Usage(
            "kv_dtype: weights in f32 go with a KV cache in f32 or int8; leave it out".to_owned(),
        )),
        _ => Ok(KvPrecision::ByWeights),
    }
}

/// A model's weights on a device.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// What the device holds them in.
    pub precision: Precision,
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
            (Precision::Bf16 | Precision::Stored, _) => "bfloat16",
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

    fn config(flags: &[(&'static str, &str)]) -> ModelConfig {
        let flags = flags
            .iter()
            .map(|(key, word)| (*key, (*word).to_owned()))
            .collect();
        let resolved = resolve(Inputs {
            flags,
            ..Inputs::default()
        });
        resolved.expect("good flags").config.model_config
    }

    fn found(model: &str, flags: &[(&'static str, &str)]) -> Result<Precision, String> {
        let config = config(flags);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
        let checkpoint = Checkpoint::open(&folder.join(model)).expect("fixture");
        let spec = families::spec(checkpoint.config()).expect("fixture");
        let info = ModelInfo::gather(&checkpoint, &spec).expect("fixture");
        precision(&config, &info).map_err(|error| error.to_string())
    }

    #[test]
    fn options_and_file_together_decide() {
        let check = |model, flags: &[_], expected| assert_eq!(found(model, flags), Ok(expected));
        check("llama", &[], Precision::F32);
        check("llama/bf16", &[], Precision::Stored);
        check("llama/bf16", &[("quantize", "none")], Precision::Bf16);
        check("llama", &[("quantize", "none")], Precision::F32);
        check("llama/bf16", &[("dtype", "f32")], Precision::F32);
        check("llama", &[("quantize", "int8")], Precision::Int8);
        check(
            "llama",
            &[("quantize", "int4"), ("dtype", "bf16")],
            Precision::Int4,
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let told = |flags: &[_]| found("llama", flags).unwrap_err();
        assert!(told(&[("quantize", "int8"), ("dtype", "f32")]).starts_with("quantize: "));
    }

    #[test]
    fn keys_and_values_go_with_the_weights() {
        let found = |word: &str, weights| {
            let config = config(&[("kv_dtype", word)]);
            kv_precision(&config, weights).map_err(|error| error.to_string())
        };
        assert_eq!(found("auto", Precision::F32), Ok(KvPrecision::ByWeights));
        assert_eq!(found("bf16", Precision::Int4), Ok(KvPrecision::ByWeights));
        assert_eq!(found("int8", Precision::Bf16), Ok(KvPrecision::Int8));
        let told = found("bf16", Precision::F32).unwrap_err();
        assert!(told.starts_with("kv_dtype: weights in f32"), "{told}");
    }
}
