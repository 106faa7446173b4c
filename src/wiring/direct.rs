//! A model without an engine: its tokenizer, and an executor that the caller drives step by step. For commands that measure
//! or rewrite a model; nothing is served this way.

use super::model::find;
use super::precision::{Weights, half, kv_precision, precision};
use super::{simulated, texts};
use crate::config::Config;
use crate::devices::{self, Chosen, DeviceOptions};
use crate::start_error::StartError;
use ropeteam_device::{Device, DeviceError, Float, KvPrecision, Precision};
use ropeteam_models::source::Located;
use ropeteam_models::text::Codec;
use ropeteam_models::{
    Checkpoint, DecoderSpec, LoadError, ModelInfo, ModelRunner, RunnerOptions, families,
};

/// An opened model; its weights are still in its files.
pub struct DirectModel {
    /// What it is called.
    pub name: String,
    /// Its files.
    pub checkpoint: Checkpoint,
    /// Its shape.
    pub spec: DecoderSpec,
    /// Its facts.
    pub info: ModelInfo,
    /// Its tokenizer.
    pub codec: Codec,
    device: Chosen,
    half: Float,
    step_timeout_ms: u64,
    threads: Option<usize>,
    precision: Precision,
    kv: KvPrecision,
}

/// What an executor shall hold: one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Longest sequence.
    pub tokens: u32,
    /// Tokens, and logits rows, in a step.
    pub step: u32,
}

impl DirectModel {
    /// Opens the model that `config` names. Blocks while files are read or downloaded.
    ///
    /// # Errors
    /// What is wrong with the model or the options.
    pub fn open(config: &Config) -> Result<Self, StartError> {
        let model = &config.model_config;
        if model.device == simulated::NAME {
            let what = "device: simulated has no weights; there is: cpu, ascend".to_owned();
            return Err(StartError::Usage(what));
        }
        let device = devices::find(&model.device)?;
        let Located { path, name } = find(&model.model)?;
        let checkpoint = Checkpoint::open(&path).map_err(LoadError::from)?;
        let spec = families::spec(checkpoint.config()).map_err(LoadError::from)?;
        let info = ModelInfo::gather(&checkpoint, &spec).map_err(LoadError::from)?;
        let codec = texts::read(&checkpoint, model)?.codec;
        let precision = precision(model, device.entry, &info)?;
        Ok(Self {
            name,
            precision,
            kv: kv_precision(model, device.entry, precision)?,
            half: half(model),
            step_timeout_ms: config.server_config.step_timeout_ms,
            checkpoint,
            spec,
            info,
            codec,
            device,
            threads: model.threads,
        })
    }

    /// The same with everything in f32.
    pub fn in_f32(mut self) -> Self {
        (self.precision, self.kv) = (Precision::F32, KvPrecision::ByWeights);
        self
    }

    /// Whether everything is in f32.
    pub fn is_f32(&self) -> bool {
        (self.precision, self.kv) == (Precision::F32, KvPrecision::ByWeights)
    }

    /// Whether its device computes in f32.
    pub fn has_f32(&self) -> bool {
        self.device.entry.f32
    }

    /// What its weights are held in.
    pub fn weights(&self) -> Weights<'_> {
        Weights {
            precision: self.precision,
            half: self.half,
            info: &self.info,
        }
    }

    /// A device that holds weights in `precision`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open_device(&self, precision: Precision) -> Result<Box<dyn Device>, DeviceError> {
        (self.device.entry.open)(&DeviceOptions {
            threads: self.threads,
            precision,
            kv: self.kv,
            half: self.half,
            number: self.device.numbers[0],
            step_timeout_ms: self.step_timeout_ms,
            // Prompts alone are computed here, for which there are none.
            graphs: false,
        })
    }

    /// Loads the weights.
    ///
    /// # Errors
    /// Damaged files, too little memory.
    pub fn load(&self, reach: Reach) -> Result<ModelRunner, StartError> {
        let device = self.open_device(self.precision).map_err(LoadError::from)?;
        let options = RunnerOptions {
            kv_blocks: reach.tokens.div_ceil(self.device.entry.block_size),
            block_size: self.device.entry.block_size,
            max_model_len: reach.tokens,
            max_step_tokens: reach.step,
            max_logits_rows: reach.step,
            mask: self.codec.column_mask(self.spec.vocab),
        };
        Ok(ModelRunner::load(&self.checkpoint, device, options)?)
    }
}
