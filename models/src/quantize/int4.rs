//! int4 per group of inputs, with error feedback on a calibration text or, without one, each weight by itself.

use super::calibrating::{Calibrating, Rounding};
use super::error::QuantizeError;
use super::feedback::Feedback;
use super::grid::{Int4Format, Int4Rows};
use super::hessian::gram;
use super::output::Output;
use super::{Told, Written, scheme};
use crate::checkpoint::Checkpoint;
use crate::decoder::Decoder;
use crate::error::LoadError;
use crate::families;
use crate::rounding::f32_view;
use crate::spec::{DecoderSpec, Projection};
use ropeteam_device::{Device, DeviceError, Precision, Rows, Segment, TensorView, Weight};
use ropeteam_engine::ids::TokenId;
use std::path::Path;

/// A text to run through the model, and devices to do it on.
pub struct Calibration<'a> {
    /// The text.
    pub ids: &'a [TokenId],
    /// Opens a device that holds weights in the precision asked for.
    pub open_device: &'a dyn Fn(Precision) -> Result<Box<dyn Device>, DeviceError>,
}

/// Fewer tokens tell too little about how inputs go together.
const LEAST_TOKENS: usize = 256;
/// More take time and memory for little.
const MOST_TOKENS: usize = 8192;
/// Tokens that see each other.
const SEQUENCE: usize = 512;
/// Tokens per block of the KV cache.
const BLOCK: usize = 16;

/// Writes `checkpoint` to the folder `out` with int4 projections.
///
/// # Errors
/// A model that is quantised already or whose rows are no whole groups, files that cannot be read or written, a folder that is not
/// empty, a device that fails, a calibration text that is too short.
pub fn int4(
    checkpoint: &Checkpoint,
    out: &Path,
    format: Int4Format,
    calibration: Option<&Calibration<'_>>,
    told: Told<'_>,
) -> Result<Written, QuantizeError> {
    let spec = families::spec(checkpoint.config())?;
    check_groups(checkpoint, &spec, format)?;
    let mut rounder = Rounder {
        checkpoint,
        output: Output::begin(checkpoint, out)?,
        format,
        calibration,
        done: 0,
        total: 4 * spec.layers(),
        told,
        failure: None,
    };
    match calibration {
        Some(calibration) => {
            let outcome = calibrate(&spec, checkpoint, calibration, &mut rounder);
            // What the rounder met says more than the device that had to stop for it.
            if let Some(failure) = rounder.failure {
                return Err(failure);
            }
            outcome?;
        }
        None => {
            for layer in 0..spec.layers() {
                for projection in spec.projections().in_order() {
                    let feedback = Feedback::none(projection.inputs);
                    rounder.write(layer, &projection, &feedback)?;
                }
            }
        }
    }
    rounder.output.finish(&spec, scheme::int4(format))
}

fn check_groups(
    checkpoint: &Checkpoint,
    spec: &DecoderSpec,
    format: Int4Format,
) -> Result<(), QuantizeError> {
    for projection in spec.projections().in_order() {
        if !projection.inputs.is_multiple_of(format.group) {
            let (name, _) = projection.parts[0];
            return Err(QuantizeError::Source {
                path: checkpoint.path().to_path_buf(),
                problem: format!(
                    "has rows of {} in {name}, which are no whole groups of {}",
                    projection.inputs, format.group
                ),
            });
        }
    }
    Ok(())
}

/// Runs the text through the model in one step; its projections are rounded on the way.
fn calibrate(
    spec: &DecoderSpec,
    checkpoint: &Checkpoint,
    calibration: &Calibration<'_>,
    rounder: &mut Rounder<'_, '_>,
) -> Result<(), QuantizeError> {
    let found = calibration.ids.len();
    if found < LEAST_TOKENS {
        let needed = LEAST_TOKENS;
        return Err(QuantizeError::Calibration { found, needed });
    }
    let ids = &calibration.ids[..found.min(MOST_TOKENS)];
    let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
    let rows = rows(ids.len(), SEQUENCE.min(spec.max_positions));
    let blocks = rows
        .segments
        .iter()
        .map(|segment| segment.blocks.len())
        .sum();
    let mut inner = (calibration.open_device)(Precision::Bf16)?;
    let mut device = Calibrating::new(spec, &mut *inner, rounder);
    let decoder = Decoder::load(spec.clone(), checkpoint, &mut device, (ids.len(), 1))?;
    device.alloc_kv(spec.kv_shape(blocks, BLOCK))?;
    decoder.pass_all(&mut device, &ids, &rows)?;
    Ok(())
}

/// `tokens` rows as sequences of at most `length`.
fn rows(tokens: usize, length: usize) -> Rows {
    let mut rows = Rows::default();
    let mut next_block = 0u32;
    for first_row in (0..tokens).step_by(length) {
        let count = length.min(tokens - first_row);
        let blocks: Vec<u32> = (next_block..).take(count.div_ceil(BLOCK)).collect();
        next_block += blocks.len() as u32;
        for position in 0..count {
            let slot = blocks[position / BLOCK] * BLOCK as u32 + (position % BLOCK) as u32;
            rows.positions.push(position as u32);
            rows.slots.push(slot);
        }
        rows.segments.push(Segment {
            first_row,
            rows: count,
            blocks,
        });
    }
    rows
}

/// Rounds projections and writes them.
struct Rounder<'a, 't> {
    checkpoint: &'a Checkpoint,
    output: Output<'a>,
    format: Int4Format,
    calibration: Option<&'a Calibration<'a>>,
    done: usize,
    total: usize,
    told: Told<'t>,
    failure: Option<QuantizeError>,
}

impl Rounder<'_, '_> {
    /// Rounds the matrices of a projection, writes them and returns them.
    fn write(
        &mut self,
        layer: usize,
        projection: &Projection,
        feedback: &Feedback,
    ) -> Result<Vec<Int4Rows>, QuantizeError> {
        let mut rounded = Vec::new();
        for source in self.output.sources(layer, projection)? {
            let dtype = source.tensor.dtype;
            let rows = feedback.round(&source.tensor.view(), self.format, dtype);
            self.output.add_int4(&source.module, &rows, dtype)?;
            rounded.push(rows);
        }
        self.done += 1;
        (self.told)(self.done, self.total);
        Ok(rounded)
    }

    fn round_for(
        &mut self,
        layer: usize,
        projection: &Projection,
        x: &[f32],
        device: &mut dyn Device,
    ) -> Result<Weight, QuantizeError> {
        let Some(calibration) = self.calibration else {
            return Err(LoadError::from(stopped()).into());
        };
        let mut multiplier = (calibration.open_device)(Precision::F32)?;
        let hessian = gram(&mut *multiplier, x, projection.inputs)?;
        drop(multiplier);
        let feedback = Feedback::new(hessian, projection.inputs);
        let rounded = self.write(layer, projection, &feedback)?;
        let matrices: Vec<Vec<u8>> = rounded
            .iter()
            .map(|rows| rows.weights().flat_map(f32::to_le_bytes).collect())
            .collect();
        let views: Vec<TensorView<'_>> = matrices
            .iter()
            .zip(&rounded)
            .map(|(bytes, rows)| f32_view(bytes, rows.shape))
            .collect();
        let mut biases = Vec::new();
        for (name, outputs) in projection.parts.iter().filter(|_| projection.bias) {
            let name = format!("model.layers.{layer}.{name}.bias");
            biases.push(self.checkpoint.tensor(&name, &[*outputs])?);
        }
        let biases: Vec<_> = biases.iter().map(|bias| bias.view()).collect();
        Ok(device.load_linear(&views, &biases)?)
    }
}

impl Rounding for Rounder<'_, '_> {
    fn round(
        &mut self,
        layer: usize,
        projection: &Projection,
        x: &[f32],
        device: &mut dyn Device,
    ) -> Result<Weight, DeviceError> {
        self.round_for(layer, projection, x, device)
            .map_err(|error| {
                self.failure = Some(error);
                stopped()
            })
    }
}

fn stopped() -> DeviceError {
    DeviceError::Lost("rounding stopped".to_owned())
}
