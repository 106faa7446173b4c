//! Damaged and hostile GGUF files: refused with a message that names the file and the culprit, without panic and without
//! allocating what a length field claims.

mod model_files;
mod tiny_models;

use model_files::gguf::{GgufTensor, Meta, gguf_bytes};
use proptest::prelude::*;
use ropeteam_models::{Checkpoint, families};
use std::path::Path;

/// A small file: the metadata of a Llama and two tensors.
fn metadata() -> Vec<(String, Meta)> {
    let number = |key: &str, value| (format!("llama.{key}"), Meta::U32(value));
    vec![
        ("general.architecture".to_owned(), Meta::Text("llama")),
        number("embedding_length", 32),
        number("feed_forward_length", 32),
        number("block_count", 1),
        number("context_length", 64),
        number("attention.head_count", 2),
        number("attention.head_count_kv", 2),
        (
            "llama.attention.layer_norm_rms_epsilon".to_owned(),
            Meta::F32(1e-5),
        ),
        (
            "tokenizer.ggml.tokens".to_owned(),
            Meta::Texts(vec!["a".to_owned(), "b".to_owned()]),
        ),
    ]
}

fn tensor(name: &str, shape: &[usize], kind: u32, bytes: usize) -> GgufTensor {
    GgufTensor {
        name: name.to_owned(),
        shape: shape.to_vec(),
        kind,
        bytes: vec![0; bytes],
    }
}

fn tensors() -> Vec<GgufTensor> {
    vec![
        tensor("token_embd.weight", &[4, 32], 8, 4 * 34),
        tensor("output_norm.weight", &[32], 0, 128),
        tensor("blk.0.attn_q.weight", &[32, 32], 2, 32 * 18),
    ]
}

/// Opens a file of these bytes and asks for its tensors.
fn open(bytes: &[u8]) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    read_all(&path).map_err(|error| {
        assert!(error.contains("model.gguf"), "{error}");
        error
    })
}

fn read_all(path: &Path) -> Result<(), String> {
    let checkpoint = Checkpoint::open(path).map_err(|error| error.to_string())?;
    let spec = families::spec(checkpoint.config()).map_err(|error| error.to_string())?;
    let expected: [(&str, &[usize]); 3] = [
        ("model.embed_tokens.weight", &[spec.vocab, spec.hidden]),
        ("model.norm.weight", &[spec.hidden]),
        (
            "model.layers.0.self_attn.q_proj.weight",
            &[spec.hidden, spec.hidden],
        ),
    ];
    for (name, shape) in expected {
        checkpoint
            .tensor(name, shape)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn refused(bytes: &[u8], says: &[&str]) {
    let message = open(bytes).unwrap_err();
    for words in says {
        assert!(
            message.contains(words),
            "{message:?} does not say {words:?}"
        );
    }
}

#[test]
fn the_small_file_itself_opens() {
    open(&gguf_bytes(3, &metadata(), &tensors())).unwrap();
}

#[test]
fn a_file_of_another_kind_or_version_is_refused() {
    refused(b"", &[]);
    refused(b"GGU", &[]);
    refused(b"<!DOCTYPE html>", &["GGUF"]);
    refused(&gguf_bytes(1, &metadata(), &tensors()), &["version 1"]);
    refused(
        &gguf_bytes(3u32.swap_bytes(), &metadata(), &tensors()),
        &["version"],
    );
}

#[test]
fn counts_beyond_the_file_are_refused() {
    let good = gguf_bytes(3, &metadata(), &tensors());
    for at in [8, 16, 24] {
        for count in [1 << 20, u64::MAX >> 1, u64::MAX] {
            let mut bytes = good.clone();
            bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
            refused(&bytes, &["at most"]);
        }
    }
}

#[test]
fn tensors_that_lie_are_refused_by_name() {
    let with = |change: fn(&mut Vec<GgufTensor>)| {
        let mut tensors = tensors();
        change(&mut tensors);
        gguf_bytes(3, &metadata(), &tensors)
    };
    refused(
        &with(|t| t[2].shape = vec![1 << 40, 1 << 40]),
        &["blk.0.attn_q.weight", "beyond"],
    );
    refused(
        &with(|t| t[2].shape = vec![64, 32]),
        &["blk.0.attn_q.weight", "beyond"],
    );
    refused(
        &with(|t| t[2].shape = vec![32, 31]),
        &["blk.0.attn_q.weight"],
    );
    refused(
        &with(|t| t[2].shape = vec![16, 32]),
        &["q_proj", "[16, 32]", "[32, 32]"],
    );
    refused(
        &with(|t| t[2].shape = vec![1, 1, 1, 32, 32]),
        &["5 dimensions"],
    );
    refused(&with(|t| t[2].kind = 13), &["q_proj", "Q5_K", "Q4_K"]);
    refused(&with(|t| t[2].kind = 77), &["q_proj", "type 77"]);
    refused(
        &with(|t| t[1].name = "token_embd.weight".to_owned()),
        &["twice"],
    );
    refused(&with(|t| _ = t.remove(1)), &["model.norm.weight"]);
    refused(&with(|t| t[0].bytes[1] = 0x7c), &["embed_tokens", "row 0"]);
    // Two tensors of one place: the second's offset field stands in the last eight bytes of its entry.
    let mut bytes = with(|_| ());
    let name = b"output_norm.weight";
    let at = bytes
        .windows(name.len())
        .position(|window| window == name)
        .unwrap();
    let offset = at + name.len() + 4 + 8 + 4;
    bytes[offset..offset + 8].copy_from_slice(&32u64.to_le_bytes());
    refused(&bytes, &["overlap"]);
    bytes[offset] = 33;
    refused(&bytes, &["not aligned"]);
}

#[test]
fn metadata_that_asks_for_what_is_not_built_is_refused_by_name() {
    let with = |key: &str, value: Meta| {
        let mut metadata = metadata();
        metadata.retain(|(known, _)| known != key);
        metadata.push((key.to_owned(), value));
        gguf_bytes(3, &metadata, &tensors())
    };
    refused(
        &with("general.architecture", Meta::Text("mamba")),
        &["mamba", "qwen3"],
    );
    refused(
        &with("llama.expert_count", Meta::U32(8)),
        &["llama.expert_count"],
    );
    refused(
        &with("llama.rope.scaling.type", Meta::Text("longrope")),
        &["longrope"],
    );
    refused(
        &with("llama.block_count", Meta::Text("one")),
        &["block_count"],
    );
    refused(
        &with("llama.attention.head_count_kv", Meta::I32s(vec![2, 1])),
        &["head_count_kv"],
    );
    refused(&with("split.count", Meta::U32(3)), &["split.count"]);
    refused(
        &with("general.alignment", Meta::U32(33)),
        &["general.alignment"],
    );
}

#[test]
fn metadata_that_changes_attention_or_scales_is_refused_by_name() {
    let with = |key: &str, value: Meta| {
        let mut metadata = metadata();
        metadata.push((format!("llama.{key}"), value));
        gguf_bytes(3, &metadata, &tensors())
    };
    for (key, value) in [
        ("attention.causal", Meta::Bool(false)),
        ("attention.sliding_window", Meta::U32(63)),
        ("attention.sliding_window", Meta::I32s(vec![63])),
        ("attention.scale", Meta::F32(0.5)),
        ("residual_scale", Meta::F32(0.5)),
        ("rope.scaling.yarn_log_multiplier", Meta::F32(0.1)),
    ] {
        refused(&with(key, value), &[&format!("llama.{key}")]);
    }
    let as_small = open(&gguf_bytes(3, &metadata(), &tensors()));
    for (key, value) in [
        ("attention.causal", Meta::Bool(true)),
        ("attention.sliding_window", Meta::U32(0)),
        ("attention.sliding_window", Meta::U32(64)),
        ("attention.scale", Meta::F32(0.25)),
        ("residual_scale", Meta::F32(1.0)),
        ("rope.scaling.yarn_log_multiplier", Meta::F32(0.0)),
    ] {
        assert_eq!(open(&with(key, value)), as_small, "{key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_changed_file_never_panics(at in 0usize..900, to: u8, also in prop::option::of((0usize..900, any::<u8>())), cut in prop::option::of(0usize..1600)) {
        let mut bytes = gguf_bytes(3, &metadata(), &tensors());
        for (at, to) in [Some((at, to)), also].into_iter().flatten() {
            let at = at % bytes.len();
            bytes[at] = to;
        }
        bytes.truncate(cut.unwrap_or(usize::MAX));
        let _ = open(&bytes);
    }
}
