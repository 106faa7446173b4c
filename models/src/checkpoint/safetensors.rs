//! Tensors of safetensors files: one file, or shards that an index names.
//! The format's own checks (header length, offsets, shape against bytes) are the `safetensors` crate's.

use super::error::CheckpointError;
use super::mapped::{MappedFile, read_text};
use super::table::{StoredTensor, TensorTable};
use super::unique::UniqueKeys;
use ropeteam_device::Dtype;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as FileDtype, TensorInfo};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

/// Opens a single file that holds all tensors.
pub(crate) fn open_single(path: &Path) -> Result<TensorTable, CheckpointError> {
    let mut table = TensorTable::new(path);
    let file = MappedFile::open(path)?;
    let tensors = read_header(&file)?;
    let index = table.add_file(file);
    for (name, tensor) in tensors {
        table.insert(
            name,
            StoredTensor {
                file: index,
                ..tensor
            },
        )?;
    }
    Ok(table)
}

/// Opens the shards that `index` (a `model.safetensors.index.json`) names.
pub(crate) fn open_sharded(index: &Path) -> Result<TensorTable, CheckpointError> {
    let folder = index.parent().unwrap_or(Path::new("."));
    let mut table = TensorTable::new(index);
    for (shard, names) in names_by_shard(index)? {
        let file = MappedFile::open(&folder.join(&shard))?;
        let mut tensors = read_header(&file)?;
        let shard_index = table.add_file(file);
        for name in names {
            let tensor = tensors.remove(&name).ok_or_else(|| {
                CheckpointError::malformed(index, format!("{name} is not in {shard}"))
            })?;
            table.insert(
                name,
                StoredTensor {
                    file: shard_index,
                    ..tensor
                },
            )?;
        }
    }
    Ok(table)
}

fn names_by_shard(index: &Path) -> Result<BTreeMap<String, Vec<String>>, CheckpointError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: UniqueKeys<String>,
    }
    let parsed: Index = serde_json::from_str(&read_text(index)?)
        .map_err(|error| CheckpointError::malformed(index, error.to_string()))?;
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, shard) in parsed.weight_map.0 {
        let parts: Vec<Component<'_>> = Path::new(&shard).components().collect();
        if !matches!(parts[..], [Component::Normal(_)]) {
            let detail = format!("{shard:?} is not a file beside it");
            return Err(CheckpointError::malformed(index, detail));
        }
        shards.entry(shard).or_default().push(tensor);
    }
    if shards.is_empty() {
        return Err(CheckpointError::malformed(
            index,
            "weight_map names no tensor",
        ));
    }
    Ok(shards)
}

fn read_header(file: &MappedFile) -> Result<HashMap<String, StoredTensor>, CheckpointError> {
    let bytes = file.bytes();
    let malformed = |detail: String| CheckpointError::malformed(file.path(), detail);
    let parsed = SafeTensors::deserialize(bytes)
        .map_err(|error| malformed(diagnosis(bytes).unwrap_or_else(|| error.to_string())))?;
    refuse_double_names(bytes).map_err(malformed)?;
    let base = bytes.as_ptr() as usize;
    let mut tensors = HashMap::with_capacity(parsed.len());
    for (name, view) in parsed.iter() {
        let start = view.data().as_ptr() as usize - base;
        let tensor = StoredTensor {
            file: 0,
            dtype: known_dtype(view.dtype()),
            shape: view.shape().to_vec(),
            bytes: start..start + view.data().len(),
            row_order: None,
        };
        tensors.insert(name.to_owned(), tensor);
    }
    Ok(tensors)
}

/// What is wrong with a file that the crate refused, with the tensor and the numbers, if its header can be read at all.
fn diagnosis(bytes: &[u8]) -> Option<String> {
    let (len, rest) = bytes.split_first_chunk::<8>()?;
    let header_len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let Some(header) = rest.get(..header_len) else {
        let found = rest.len();
        return Some(format!(
            "its header has {header_len} bytes by its own account, the file has {found} for it"
        ));
    };
    let mut entries: Map<String, Value> = serde_json::from_slice(header).ok()?;
    entries.remove("__metadata__");
    let mut end = 0;
    for (name, entry) in entries {
        let info: TensorInfo = match serde_json::from_value(entry) {
            Ok(info) => info,
            Err(error) => return Some(format!("tensor {name}: {error}")),
        };
        let (from, to) = info.data_offsets;
        let elements = info
            .shape
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size));
        let needed = elements.and_then(|elements| elements.checked_mul(info.dtype.bitsize()));
        if needed.map(|bits| bits / 8) != to.checked_sub(from) {
            let (dtype, shape) = (info.dtype, info.shape);
            return Some(format!(
                "tensor {name} of {dtype} {shape:?} cannot lie in bytes {from}..{to}"
            ));
        }
        end = end.max(to);
    }
    let found = rest.len() - header_len;
    (end != found).then(|| format!("its tensors take {end} bytes, the file has {found} for them"))
}

/// The crate lets the last of two equal names win.
fn refuse_double_names(bytes: &[u8]) -> Result<(), String> {
    let (header_len, _) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let header = &bytes[8..8 + header_len];
    serde_json::from_slice::<UniqueKeys<serde::de::IgnoredAny>>(header)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn known_dtype(dtype: FileDtype) -> Result<Dtype, String> {
    match dtype {
        FileDtype::F32 => Ok(Dtype::F32),
        FileDtype::F16 => Ok(Dtype::F16),
        FileDtype::BF16 => Ok(Dtype::BF16),
        other => Err(other.to_string()),
    }
}
