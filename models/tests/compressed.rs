//! Folders with quantised weights as compressed-tensors writes them: they compute what their widened twin does, and what does
//! not fit together is refused by name.

mod model_files;
mod tiny_models;

use model_files::{Tensor, Tensors, pack_safetensors, read_safetensors, write_safetensors};
use ropeteam_device::{Dtype, Precision};
use ropeteam_models::Checkpoint;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tiny_models::{Goldens, Setup, folder, load};

/// A tensor as it stands in a file.
#[derive(Clone)]
struct Raw {
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

type Raws = BTreeMap<String, Raw>;

/// How the projections are stored.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// W8A8.
    Int8,
    /// 8 bits in words, a factor per output.
    Words8,
    /// 8 bits in words, a factor per group of 32.
    Groups8,
    /// 4 bits in words, a factor per group of so many inputs, symmetric or not.
    Int4(usize, bool),
    /// 4 bits in words, a factor per output.
    Channels4,
}

const FORMS: [Form; 7] = [
    Form::Int8,
    Form::Words8,
    Form::Groups8,
    Form::Int4(32, true),
    Form::Int4(32, false),
    Form::Int4(64, false),
    Form::Channels4,
];

impl Form {
    fn bits(self) -> u32 {
        match self {
            Form::Int8 | Form::Words8 | Form::Groups8 => 8,
            _ => 4,
        }
    }

    fn group(self, inputs: usize) -> usize {
        match self {
            Form::Groups8 => 32,
            Form::Int4(group, _) => group,
            _ => inputs,
        }
    }

    /// Blocks of 32 hold whole rows only; the tiny model's down projection has 112 inputs.
    fn takes(self, inputs: usize) -> bool {
        matches!(self, Form::Int8 | Form::Words8) || inputs.is_multiple_of(32)
    }

    fn symmetric(self) -> bool {
        !matches!(self, Form::Int4(_, false))
    }

    fn config(self) -> Value {
        let grouped = matches!(self, Form::Groups8 | Form::Int4(..));
        let weights = json!({
            "num_bits": self.bits(), "type": "int", "symmetric": self.symmetric(), "dynamic": false, "actorder": null,
            "strategy": if grouped { "group" } else { "channel" },
            "group_size": if grouped { json!(self.group(0)) } else { Value::Null },
        });
        let activations = json!({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true});
        let group = json!({
            "targets": ["Linear"], "weights": weights, "output_activations": null,
            "input_activations": if self == Form::Int8 { activations } else { Value::Null },
        });
        json!({
            "quant_method": "compressed-tensors", "quantization_status": "compressed",
            "ignore": if self.takes(1) { json!(["lm_head"]) } else { json!(["lm_head", "re:.*down_proj"]) },
            "format": if self == Form::Int8 { "int-quantized" } else { "pack-quantized" },
            "kv_cache_scheme": null, "config_groups": {"group_0": group},
        })
    }
}

fn bf16(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values
        .flat_map(|x| half::bf16::from_f32(x).to_le_bytes())
        .collect()
}

/// Packs rows of numbers from 0 on into words.
fn words(numbers: &[u32], width: usize, bits: u32) -> Vec<u8> {
    let per_word = (32 / bits) as usize;
    let rows = numbers.chunks(width).flat_map(|row| row.chunks(per_word));
    let word = |numbers: &[u32]| -> u32 { (0..).zip(numbers).map(|(i, q)| q << (bits * i)).sum() };
    rows.flat_map(|numbers| word(numbers).to_le_bytes())
        .collect()
}

/// Stores a matrix in `form`; returns what it then holds. Factors are powers of two, so that no format rounds them.
fn store(form: Form, name: &str, tensor: &Tensor, raws: &mut Raws) -> Vec<f32> {
    let [outputs, inputs] = tensor.shape[..] else {
        panic!()
    };
    let (group, bits) = (form.group(inputs), form.bits());
    let half = 1i32 << (bits - 1);
    let (mut numbers, mut scales, mut zeros, mut held) = (vec![], vec![], vec![], vec![]);
    for (index, values) in tensor.values.chunks(group).enumerate() {
        let largest = values.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        let scale = (largest / (half - 1) as f32).log2().ceil().exp2();
        let zero = if form.symmetric() {
            0
        } else {
            index as i32 % 3 - 1
        };
        for x in values {
            let q = ((x / scale).round() as i32 + zero).clamp(-half, half - 1);
            numbers.push(q);
            held.push((q - zero) as f32 * scale);
        }
        scales.push(scale);
        zeros.push(zero);
    }
    let module = name.strip_suffix(".weight").unwrap();
    let mut add = |part: &str, dtype, shape: &[usize], bytes| {
        let raw = Raw {
            dtype,
            shape: shape.to_vec(),
            bytes,
        };
        raws.insert(format!("{module}.{part}"), raw);
    };
    let groups = inputs / group;
    add(
        "weight_scale",
        "BF16",
        &[outputs, groups],
        bf16(scales.into_iter()),
    );
    if form == Form::Int8 {
        add(
            "weight",
            "I8",
            &[outputs, inputs],
            numbers.iter().map(|q| *q as i8 as u8).collect(),
        );
        return held;
    }
    let unsigned = |numbers: &[i32]| {
        numbers
            .iter()
            .map(|q| (q + half) as u32)
            .collect::<Vec<_>>()
    };
    let per_word = (32 / bits) as usize;
    add(
        "weight_packed",
        "I32",
        &[outputs, inputs / per_word],
        words(&unsigned(&numbers), inputs, bits),
    );
    add(
        "weight_shape",
        "I64",
        &[2],
        [outputs as i64, inputs as i64]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect(),
    );
    if !form.symmetric() {
        let columns: Vec<i32> = (0..groups)
            .flat_map(|g| (0..outputs).map(move |o| (o, g)))
            .map(|(o, g)| zeros[o * groups + g])
            .collect();
        let by_group = words(&unsigned(&columns), outputs, bits);
        let height = outputs.div_ceil(per_word);
        let word = |row: usize, group: usize| &by_group[4 * (group * height + row)..][..4];
        let packed = (0..height)
            .flat_map(|row| (0..groups).flat_map(move |g| word(row, g).to_vec()))
            .collect();
        add("weight_zero_point", "I32", &[height, groups], packed);
    }
    held
}

/// The tiny Llama with its projections in `form`, and all it then holds in f32.
fn quantized(form: Form) -> (Raws, Tensors) {
    let (mut raws, mut widened) = (Raws::new(), read_safetensors(&folder("llama")));
    for (name, tensor) in &mut widened {
        if name.contains("_proj.") && form.takes(tensor.shape[1]) {
            tensor.values = store(form, name, tensor, &mut raws);
        } else {
            let bytes = tensor.values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let raw = Raw {
                dtype: "F32",
                shape: tensor.shape.clone(),
                bytes,
            };
            raws.insert(name.clone(), raw);
        }
    }
    (raws, widened)
}

fn write(raws: &Raws, quantization: &Value) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, raw) in raws {
        let offsets = [data.len(), data.len() + raw.bytes.len()];
        let entry = json!({"dtype": raw.dtype, "shape": raw.shape, "data_offsets": offsets});
        header.insert(name.clone(), entry);
        data.extend(&raw.bytes);
    }
    let bytes = pack_safetensors(&Value::Object(header).to_string(), &data);
    fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    let text = fs::read_to_string(folder("llama").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["quantization_config"] = quantization.clone();
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    dir
}

fn logits(path: &Path, precision: Precision) -> Vec<f32> {
    let ids = Goldens::read(&folder("llama")).prompts[2].ids.clone();
    let mut model = load(path, Setup::new(precision)).unwrap();
    model.all_logits(&ids, ids.len()).concat()
}

#[test]
fn a_quantised_folder_computes_what_its_widened_twin_does() {
    for form in FORMS {
        let (raws, widened) = quantized(form);
        let dir = write(&raws, &form.config());
        let twin = tempfile::tempdir().unwrap();
        write_safetensors(&twin.path().join("model.safetensors"), &widened);
        fs::copy(
            folder("llama").join("config.json"),
            twin.path().join("config.json"),
        )
        .unwrap();
        let expected = logits(twin.path(), Precision::F32);
        assert_eq!(logits(dir.path(), Precision::F32), expected);
        // With weights as the file holds them, activations are rounded to 8 bits.
        let stored = logits(dir.path(), Precision::Stored);
        let differences = stored.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let mean = differences.sum::<f32>() / stored.len() as f32;
        assert!(mean < 0.25, "logits move by {mean}");
    }
}

#[test]
fn what_a_device_is_given_is_counted_and_parts_of_a_weight_are_one() {
    let (raws, _) = quantized(Form::Int4(32, false));
    let dir = write(&raws, &Form::Int4(32, false).config());
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.weights_dtype(), Some(Dtype::Q4_1));
    let total: u64 = checkpoint
        .elements()
        .iter()
        .map(|(_, numbers)| numbers)
        .sum();
    assert_eq!(total, 191_936);
    let names: Vec<_> = checkpoint.tensor_names().collect();
    assert_eq!(
        names
            .iter()
            .filter(|name| name.contains("layers.0.mlp.up_proj"))
            .count(),
        1
    );
}

/// Loading says all of `words` when `change` was made to an int4 model with zero points, or to an int8 one.
fn refused(form: Form, change: impl Fn(&mut Raws), words: &[&str]) {
    let (mut raws, _) = quantized(form);
    change(&mut raws);
    let dir = write(&raws, &form.config());
    let Err(error) = load(dir.path(), Setup::new(Precision::F32)) else {
        panic!("loaded, though {words:?} were expected")
    };
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

const MODULE: &str = "model.layers.1.self_attn.o_proj";

fn part(raws: &mut Raws, name: &str) -> Raw {
    raws.remove(&format!("{MODULE}.{name}")).unwrap()
}

fn put(raws: &mut Raws, name: &str, raw: Raw) {
    raws.insert(format!("{MODULE}.{name}"), raw);
}

#[test]
fn parts_that_are_missing_or_do_not_fit_are_refused_by_name() {
    let int4 = Form::Int4(32, false);
    for (form, name) in [
        (Form::Int8, "weight"),
        (Form::Int8, "weight_scale"),
        (int4, "weight_packed"),
        (int4, "weight_scale"),
        (int4, "weight_shape"),
        (int4, "weight_zero_point"),
    ] {
        let full = format!("{MODULE}.{name}");
        refused(
            form,
            |raws| drop(part(raws, name)),
            &["holds no tensor", &full],
        );
        let wrong_shape = |raws: &mut Raws| {
            let mut raw = part(raws, name);
            raw.bytes.extend(raw.bytes.clone());
            raw.shape[0] *= 2;
            put(raws, name, raw);
        };
        refused(form, wrong_shape, &["has shape", "expected", &full]);
        let wrong_dtype = |raws: &mut Raws| {
            let mut raw = part(raws, name);
            let size = raw.bytes.len() / raw.shape.iter().product::<usize>();
            raw.dtype = ["U8", "U16", "", "U32", "", "", "", "U64"][size - 1];
            put(raws, name, raw);
        };
        refused(form, wrong_dtype, &["has elements", "supported", &full]);
    }
}

#[test]
fn numbers_that_contradict_each_other_are_refused() {
    let int4 = Form::Int4(32, false);
    for (form, bad) in [(Form::Int8, f32::NAN), (int4, f32::INFINITY), (int4, 1e30)] {
        let change = |raws: &mut Raws| {
            let mut raw = part(raws, "weight_scale");
            raw.bytes[..2].copy_from_slice(&half::bf16::from_f32(bad).to_le_bytes());
            put(raws, "weight_scale", raw);
        };
        refused(form, change, &["infinity or NaN in row 0", "weight_scale"]);
    }
    let change = |raws: &mut Raws| {
        let mut raw = part(raws, "weight_shape");
        raw.bytes[0] += 1;
        put(raws, "weight_shape", raw);
    };
    refused(int4, change, &["weight_shape says", "expected"]);
    // A symmetric model has no zero points; an order of inputs would change what groups mean.
    for (form, stray) in [
        (Form::Int4(32, true), "weight_zero_point"),
        (int4, "weight_g_idx"),
    ] {
        let change = |raws: &mut Raws| {
            let raw = Raw {
                dtype: "I32",
                shape: vec![1],
                bytes: vec![0; 4],
            };
            put(raws, stray, raw);
        };
        refused(form, change, &["does not read", stray]);
    }
    // Floats where the configuration says int8.
    let change = |raws: &mut Raws| {
        let mut raw = part(raws, "weight");
        raw.bytes = vec![0; 2 * raw.bytes.len()];
        raw.dtype = "BF16";
        put(raws, "weight", raw);
    };
    refused(Form::Int8, change, &["has elements BF16", "supported: I8"]);
}

#[test]
fn schemes_that_are_not_built_are_refused_by_name() {
    let (raws, _) = quantized(Form::Int4(32, true));
    let told = |change: &dyn Fn(&mut Value)| {
        let mut config = Form::Int4(32, true).config();
        change(&mut config);
        let dir = write(&raws, &config);
        Checkpoint::open(dir.path())
            .err()
            .expect("refused")
            .to_string()
    };
    let weights = "/config_groups/group_0/weights";
    let set = |pointer: String, value: Value| {
        told(&move |config: &mut Value| {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            config.pointer_mut(parent).unwrap()[key] = value.clone();
        })
    };
    for (pointer, value, says) in [
        (
            "/quant_method".to_owned(),
            json!("awq"),
            "quant_method is \"awq\"",
        ),
        (
            "/format".to_owned(),
            json!("float-quantized"),
            "format is \"float-quantized\"",
        ),
        (
            "/quantization_status".to_owned(),
            json!("frozen"),
            "quantization_status is \"frozen\"",
        ),
        (
            "/kv_cache_scheme".to_owned(),
            json!({"num_bits": 8}),
            "kv_cache_scheme",
        ),
        (
            "/transform_config".to_owned(),
            json!({"a": 1}),
            "transform_config",
        ),
        (
            "/sparsity_config".to_owned(),
            json!({"format": "sparse-24-bitmask"}),
            "sparsity_config.format",
        ),
        (
            format!("{weights}/num_bits"),
            json!(3),
            "weights.num_bits is 3",
        ),
        (
            format!("{weights}/type"),
            json!("float"),
            "weights.type is \"float\"",
        ),
        (
            format!("{weights}/group_size"),
            json!(16),
            "weights.group_size is 16",
        ),
        (
            format!("{weights}/strategy"),
            json!("block"),
            "weights.strategy is \"block\"",
        ),
        (
            format!("{weights}/actorder"),
            json!("group"),
            "weights.actorder is \"group\"",
        ),
        (
            "/config_groups/group_0/output_activations".to_owned(),
            json!({}),
            "output_activations",
        ),
        (
            "/config_groups/group_0/input_activations".to_owned(),
            json!({"dynamic": false}),
            "input_activations.dynamic is false",
        ),
        ("/ignore".to_owned(), json!(["re:("]), "ignore"),
    ] {
        let message = set(pointer, value);
        assert!(message.contains(says), "{message:?} does not say {says:?}");
    }
}
