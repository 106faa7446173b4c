//! Logits and greedy continuations of every family against those that transformers computed, by the rules that came with
//! them: f32 arithmetic must agree closely, bf16 arithmetic where it is not a matter of rounding.

mod tiny_models;

use ropeteam_device::Precision;
use ropeteam_engine::plan::{ChunkResult, Want};
use ropeteam_models::Checkpoint;
use std::path::Path;
use tiny_models::{Golden, Goldens, Setup, argmax, folder, load, nll};

/// Largest difference of a logit in f32 arithmetic.
const LOGIT_TOLERANCE: f32 = 1e-3;
/// Below this margin between the best two logits either may win.
const MARGIN: f32 = 2e-3;

fn check_f32(model: &Path, goldens: &Path) {
    let mut model = load(model, Setup::new(Precision::F32)).unwrap();
    for golden in Goldens::read(goldens).prompts {
        let rows = model.all_logits(&golden.ids, golden.ids.len());
        let last = rows.last().unwrap();
        let worst = largest_difference(last, &golden.last_logits);
        assert!(
            worst <= LOGIT_TOLERANCE,
            "{} tokens: logits differ by {worst}",
            golden.ids.len()
        );
        let expected = golden
            .argmax_per_position
            .iter()
            .zip(&golden.margin_per_position);
        for (position, (row, (&best, &margin))) in rows.iter().zip(expected).enumerate() {
            assert!(
                margin <= MARGIN || argmax(row) == best,
                "argmax at position {position}"
            );
        }
        for (position, (row, &expected)) in rows.iter().zip(&golden.nll_per_position).enumerate() {
            let found = nll(row, golden.ids[position + 1]);
            assert!(
                (found - f64::from(expected)).abs() < 2e-3,
                "nll at position {position}"
            );
        }
        let greedy = model.greedy(&golden.ids, golden.greedy_tokens.len());
        assert_eq_while_certain(&greedy, &golden);
    }
}

fn assert_eq_while_certain(greedy: &[u32], golden: &Golden) {
    let certain = golden
        .greedy_margins
        .iter()
        .take_while(|&&margin| margin > MARGIN)
        .count();
    assert_eq!(
        greedy[..certain],
        golden.greedy_tokens[..certain],
        "greedy tokens"
    );
}

fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

fn check_bf16(model: &Path) {
    let goldens = Goldens::read(model);
    let mut model = load(model, Setup::new(Precision::Bf16)).unwrap();
    let (mut same, mut positions) = (0, 0);
    for golden in goldens.prompts {
        let rows = model.all_logits(&golden.ids, golden.ids.len());
        let last = rows.last().unwrap();
        let differences = last
            .iter()
            .zip(&golden.last_logits)
            .map(|(a, b)| (a - b).abs());
        let mean = differences.sum::<f32>() / last.len() as f32;
        assert!(
            mean <= 0.15,
            "{} tokens: logits differ by {mean} on average",
            golden.ids.len()
        );
        let expected = golden
            .argmax_per_position
            .iter()
            .zip(&golden.margin_per_position);
        for (position, (row, (&best, &margin))) in rows.iter().zip(expected).enumerate() {
            let found = argmax(row);
            assert!(
                margin <= 1.0 || found == best,
                "argmax at position {position}"
            );
            same += usize::from(found == best);
            positions += 1;
        }
    }
    assert!(
        same * 10 >= positions * 9,
        "argmax equal at {same} of {positions} positions"
    );
}

/// The model with `config.v5.json` as its config.json, made of links as the hub's cache is.
fn with_v5_config(model: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(model.canonicalize().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let name = match entry.file_name().into_string().unwrap() {
            name if name == "config.json" => continue,
            name if name == "config.v5.json" => "config.json".to_owned(),
            name => name,
        };
        std::os::unix::fs::symlink(entry.path(), folder.path().join(name)).unwrap();
    }
    folder
}

fn check_family(name: &str) {
    let model = folder(name);
    check_f32(&model, &model);
    check_f32(with_v5_config(&model).path(), &model);
    let bf16 = model.join("bf16");
    if bf16.exists() {
        check_f32(&bf16, &bf16);
        check_bf16(&bf16);
    }
}

/// The head times the hidden state of the last token is the last row of logits; and however a prompt is cut, and whoever rides along,
/// its hidden states are the same.
#[test]
fn hidden_states_are_what_the_head_is_given() {
    let path = folder("llama");
    let mut model = load(&path, Setup::new(Precision::F32)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    for golden in Goldens::read(&path).prompts {
        let count = golden.ids.len();
        let whole = model.chunk(0, 0, &golden.ids, Want::Hidden);
        let hidden = model.step(vec![whole]).hidden.clone();
        let width = hidden.len() / count;
        let vocab = golden.last_logits.len();
        let head = checkpoint
            .tensor("lm_head.weight", &[vocab, width])
            .unwrap();
        let head = floats(head.view().bytes);
        let last = &hidden[(count - 1) * width..];
        for (row, expected) in head.chunks_exact(width).zip(&golden.last_logits) {
            let found: f32 = row.iter().zip(last).map(|(a, b)| a * b).sum();
            assert!(
                (found - expected).abs() <= LOGIT_TOLERANCE,
                "{found} for {expected}"
            );
        }
        let cut = count / 2;
        let mut pieces = Vec::new();
        for (start, ids) in [(0, &golden.ids[..cut]), (cut, &golden.ids[cut..])] {
            if ids.is_empty() {
                continue;
            }
            let other = model.chunk(1, 0, &golden.ids, Want::LastLogits);
            let piece = model.chunk(0, start, ids, Want::Hidden);
            let output = model.step(vec![other, piece]);
            let ChunkResult::Hidden { first, len } = output.results[1] else {
                panic!("hidden states were asked for");
            };
            pieces.extend_from_slice(&output.hidden[first..first + len]);
            let row = output.row(0);
            assert!(largest_difference(row, &golden.last_logits) <= LOGIT_TOLERANCE);
        }
        assert_eq!(pieces, hidden);
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

#[test]
fn llama_agrees_with_its_reference() {
    check_family("llama");
}

#[test]
fn tied_llama_agrees_with_its_reference() {
    check_family("llama-tied");
}

#[test]
fn mistral_agrees_with_its_reference() {
    check_family("mistral");
}

#[test]
fn qwen2_agrees_with_its_reference() {
    check_family("qwen2");
}

#[test]
fn tied_qwen2_agrees_with_its_reference() {
    check_family("qwen2-tied");
}

#[test]
fn yarn_qwen2_agrees_with_its_reference() {
    check_family("qwen2-yarn");
}

#[test]
fn qwen3_agrees_with_its_reference() {
    check_family("qwen3");
}

#[test]
fn glm_agrees_with_its_reference() {
    check_family("glm");
}

#[test]
fn glm4_agrees_with_its_reference() {
    check_family("glm4");
}
