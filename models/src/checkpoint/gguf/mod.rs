//! GGUF files, versions 2 and 3: metadata, and tensors under their Hugging Face names.
//! Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//! Not here: what the bytes of a block format mean (the device decodes them) and the tokenizer in the metadata
//! (`crate::text`).

mod config;
mod cursor;
mod keys;
mod metadata;
mod names;
mod refusals;

pub use metadata::{Metadata, Value};

use super::config::Config;
use super::error::CheckpointError;
use super::mapped::MappedFile;
use super::table::{StoredTensor, TensorTable};
use cursor::Cursor;
use ropeteam_device::Dtype;
use std::ops::Range;
use std::path::Path;

/// Where `general.alignment` is not given.
const DEFAULT_ALIGNMENT: i64 = 32;
/// A tensor's name length, dimension count, type and offset take at least this much.
const MIN_TENSOR_ENTRY_BYTES: usize = 24;
/// A pair's key length, type and value take at least this much.
const MIN_PAIR_BYTES: usize = 13;
/// The most dimensions that the format allows.
const MAX_DIMENSIONS: u32 = 4;

/// Whether the name is that of a GGUF file.
pub(super) fn is_gguf_name(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// An opened GGUF file.
pub(super) struct GgufFile {
    pub metadata: Metadata,
    pub config: Config,
    pub table: TensorTable,
}

/// Opens a GGUF file and checks its header, metadata and tensor table.
pub(super) fn open(path: &Path) -> Result<GgufFile, CheckpointError> {
    let file = MappedFile::open(path)?;
    let malformed = |detail| CheckpointError::malformed(path, detail);
    let (metadata, entries) = read_header(file.bytes()).map_err(malformed)?;
    let architecture = metadata
        .text("general.architecture")
        .ok_or_else(|| malformed("general.architecture is missing".to_owned()))?;
    let names = names::NameMap::new(architecture, &metadata);
    let mut config = config::from_metadata(path, architecture, &metadata, &entries)?;
    let mut table = TensorTable::new(path);
    if let Some(entry) = entries
        .iter()
        .find(|entry| entry.name == names::ROPE_FACTORS)
    {
        config =
            config.with_rope_factors(Some(rope_factors(entry, file.bytes()).map_err(malformed)?));
    }
    let index = table.add_file(file);
    for entry in entries
        .into_iter()
        .filter(|entry| entry.name != names::ROPE_FACTORS)
    {
        let (name, row_order) = names.resolve(&entry);
        let tensor = StoredTensor {
            file: index,
            dtype: entry.dtype,
            shape: entry.shape,
            bytes: entry.bytes,
            row_order,
        };
        table.insert(name, tensor)?;
    }
    Ok(GgufFile {
        metadata,
        config,
        table,
    })
}

/// One line of the tensor table.
struct TensorEntry {
    name: String,
    /// The last dimension is the one that lies together in memory (the format lists it first).
    shape: Vec<usize>,
    dtype: Result<Dtype, String>,
    /// In the file; empty when the format is not supported.
    bytes: Range<usize>,
}

fn read_header(bytes: &[u8]) -> Result<(Metadata, Vec<TensorEntry>), String> {
    let mut cursor = Cursor::new(bytes);
    if cursor.take(4)? != b"GGUF" {
        return Err("it does not begin with GGUF".to_owned());
    }
    let version = cursor.u32()?;
    if !matches!(version, 2 | 3) {
        return Err(format!(
            "version {version} of the format; versions 2 and 3 are supported"
        ));
    }
    let tensors = cursor.count(MIN_TENSOR_ENTRY_BYTES)?;
    let pairs = cursor.count(MIN_PAIR_BYTES)?;
    let metadata = Metadata::read(&mut cursor, pairs)?;
    let alignment = alignment(&metadata)?;
    let mut raw = Vec::with_capacity(tensors);
    for _ in 0..tensors {
        raw.push(RawEntry::read(&mut cursor)?);
    }
    let data = cursor.position().next_multiple_of(alignment);
    let entries: Vec<TensorEntry> = raw
        .into_iter()
        .map(|entry| entry.locate(data, alignment, bytes.len()))
        .collect::<Result<_, _>>()?;
    refuse_overlaps(&entries)?;
    Ok((metadata, entries))
}

fn alignment(metadata: &Metadata) -> Result<usize, String> {
    let alignment = match metadata.value("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(_) => metadata.int("general.alignment").unwrap_or(0),
    };
    match usize::try_from(alignment) {
        Ok(bytes) if bytes.is_power_of_two() && bytes <= 1 << 20 => Ok(bytes),
        _ => Err(format!(
            "general.alignment is {alignment}, which is no power of two"
        )),
    }
}

/// A line of the tensor table as it stands there.
struct RawEntry {
    name: String,
    shape: Vec<usize>,
    kind: u32,
    offset: u64,
}

impl RawEntry {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, String> {
        let name = cursor.text()?.to_owned();
        let dimensions = cursor.u32()?;
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(format!("tensor {name} has {dimensions} dimensions"));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let size =
                usize::try_from(cursor.u64()?).map_err(|error| format!("{name}: {error}"))?;
            shape.insert(0, size);
        }
        Ok(Self {
            name,
            shape,
            kind: cursor.u32()?,
            offset: cursor.u64()?,
        })
    }

    /// Checks that the tensor lies inside the file, whose tensors start at `data`.
    fn locate(self, data: usize, alignment: usize, file_len: usize) -> Result<TensorEntry, String> {
        let Self {
            name,
            shape,
            kind,
            offset,
        } = self;
        let dtype = match dtype_of(kind) {
            Ok(dtype) => dtype,
            Err(unknown) => {
                return Ok(TensorEntry {
                    name,
                    shape,
                    dtype: Err(unknown),
                    bytes: 0..0,
                });
            }
        };
        let start = usize::try_from(offset)
            .ok()
            .and_then(|offset| data.checked_add(offset));
        let end = start
            .zip(stored_bytes(dtype, &shape))
            .and_then(|(start, len)| start.checked_add(len));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => {
                if offset % alignment as u64 != 0 {
                    return Err(format!(
                        "tensor {name} at {offset} is not aligned to {alignment}"
                    ));
                }
                Ok(TensorEntry {
                    name,
                    shape,
                    dtype: Ok(dtype),
                    bytes: start..end,
                })
            }
            _ => Err(format!(
                "tensor {name} with shape {shape:?} at {offset} goes beyond the file's {file_len} bytes"
            )),
        }
    }
}

/// Bytes of a tensor; `None` when they overflow or a row is no whole number of blocks.
fn stored_bytes(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    let (&cols, outer) = shape.split_last()?;
    let rows = outer
        .iter()
        .try_fold(1usize, |rows, &size| rows.checked_mul(size))?;
    dtype.row_bytes(cols)?.checked_mul(rows)
}

fn refuse_overlaps(entries: &[TensorEntry]) -> Result<(), String> {
    let mut sorted: Vec<&TensorEntry> = entries.iter().filter(|e| !e.bytes.is_empty()).collect();
    sorted.sort_by_key(|entry| entry.bytes.start);
    for pair in sorted.windows(2) {
        if pair[1].bytes.start < pair[0].bytes.end {
            return Err(format!(
                "tensors {} and {} overlap",
                pair[0].name, pair[1].name
            ));
        }
    }
    Ok(())
}

fn rope_factors(entry: &TensorEntry, bytes: &[u8]) -> Result<Vec<f32>, String> {
    if entry.dtype != Ok(Dtype::F32) || entry.shape.len() != 1 {
        return Err(format!("{} must be a vector of F32", entry.name));
    }
    let (values, _) = bytes[entry.bytes.clone()].as_chunks::<4>();
    Ok(values
        .iter()
        .map(|&value| f32::from_le_bytes(value))
        .collect())
}

/// Numbers of ggml's tensor types.
fn dtype_of(kind: u32) -> Result<Dtype, String> {
    let name = match kind {
        0 => return Ok(Dtype::F32),
        1 => return Ok(Dtype::F16),
        2 => return Ok(Dtype::Q4_0),
        3 => return Ok(Dtype::Q4_1),
        8 => return Ok(Dtype::Q8_0),
        12 => return Ok(Dtype::Q4_K),
        14 => return Ok(Dtype::Q6_K),
        30 => return Ok(Dtype::BF16),
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        13 => "Q5_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return Err(format!("of ggml type {kind}")),
    };
    Err(name.to_owned())
}
