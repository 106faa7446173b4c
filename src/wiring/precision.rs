//! What weights are held in, from the options and the checkpoint.

use crate::config::{Dtype, KvDtype, ModelConfig, Quantize};
use crate::start_error::StartError;
use ropeteam_device::{Dtype as Stored, Precision};
use ropeteam_models::{DecoderSpec, ModelInfo};

/// What the device holds weights in.
///
/// # Errors
/// Options that contradict each other or that are not offered yet.
pub fn precision(config: &ModelConfig, info: &ModelInfo) -> Result<Precision, StartError> {
    let precision = match (config.quantize, config.dtype) {
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
    };
    match config.kv_dtype {
        KvDtype::Int8 => Err(StartError::Usage(
            "kv_dtype: int8 is not offered yet; there is: auto, bf16".to_owned(),
        )),
        KvDtype::Bf16 if precision == Precision::F32 => Err(StartError::Usage(
            "kv_dtype: weights in f32 go with a KV cache in f32; leave it out".to_owned(),
        )),
        _ => Ok(precision),
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

    fn found(model: &str, flags: &[(&'static str, &str)]) -> Result<Precision, String> {
        let flags = flags
            .iter()
            .map(|(key, word)| (*key, (*word).to_owned()))
            .collect();
        let resolved = resolve(Inputs {
            flags,
            ..Inputs::default()
        });
        let config = resolved.expect("good flags").config.model_config;
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
        assert!(told(&[("kv_dtype", "int8")]).starts_with("kv_dtype: int8 is not offered yet"));
        assert!(told(&[("kv_dtype", "bf16")]).starts_with("kv_dtype: weights in f32"));
    }
}
