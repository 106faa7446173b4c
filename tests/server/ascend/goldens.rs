//! Golden values of the fixture models from an NPU, and what `ropeteam quantize` writes as it computes it.

use super::Cann;
use crate::http::post;
use crate::process::{Server, ropeteam, tiny};
use serde_json::{Value, json};
use std::path::Path;

/// A prompt of a model's goldens.
struct Golden {
    ids: Vec<u32>,
    /// The tokens that follow greedily.
    greedy: Vec<u32>,
    /// How far the best logit is above the second before each of them.
    margins: Vec<f64>,
    /// What each token of the prompt but the first has cost: minus its log-probability.
    costs: Vec<f64>,
    /// Log-probability of the first token that follows.
    log_probability: f64,
}

/// Token ids that a fixture's tokenizer knows; the model has more columns, which a server never writes.
fn known_ids(model: &str) -> u32 {
    let text = std::fs::read_to_string(tiny(model).join("tokenizer.json")).expect("a tokenizer");
    let tokenizer: Value = serde_json::from_str(&text).expect("JSON");
    let vocab = tokenizer["model"]["vocab"].as_object().expect("ids");
    let added = tokenizer["added_tokens"].as_array().expect("tokens");
    let ids = vocab.values().chain(added.iter().map(|token| &token["id"]));
    let highest = ids.filter_map(Value::as_u64).max().expect("an id");
    highest as u32 + 1
}

fn goldens(model: &str) -> Vec<Golden> {
    let known = known_ids(model);
    let text = std::fs::read_to_string(tiny(model).join("goldens.json")).expect("goldens");
    let goldens: Value = serde_json::from_str(&text).expect("JSON");
    let numbers = |value: &Value| -> Vec<f64> {
        let all = value.as_array().expect("numbers").iter();
        all.map(|n| n.as_f64().expect("a number")).collect()
    };
    let ids = |value: &Value| -> Vec<u32> { numbers(value).iter().map(|id| *id as u32).collect() };
    let prompts = goldens["prompts"].as_array().expect("prompts").iter();
    prompts
        .map(|golden| {
            let mut logits = numbers(&golden["last_logits"]);
            logits.truncate(known as usize);
            let mut greedy: Vec<u32> = ids(&golden["greedy_tokens"]);
            let written = greedy.iter().position(|id| *id >= known);
            greedy.truncate(written.unwrap_or(greedy.len()));
            let mut margins = numbers(&golden["greedy_margins"]);
            margins.truncate(greedy.len());
            let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|logit| (logit - highest).exp()).sum();
            Golden {
                ids: ids(&golden["ids"]),
                greedy,
                margins,
                costs: numbers(&golden["nll_per_position"]),
                log_probability: -sum.ln(),
            }
        })
        .collect()
}

/// The first choice of a greedy completion.
fn complete(server: &Server, prompt: &[u32], more: Value) -> Value {
    let mut body = json!({"model": "m", "prompt": prompt, "temperature": 0, "ignore_eos": true, "return_token_ids": true});
    let fields = more.as_object().expect("fields").clone();
    body.as_object_mut().expect("fields").extend(fields);
    let answer = post(server.port, "/v1/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["choices"][0].clone()
}

/// Log-probability of the first token that follows greedily.
fn first_log_probability(server: &Server, prompt: &[u32]) -> f64 {
    let choice = complete(server, prompt, json!({"max_tokens": 1, "logprobs": 1}));
    let value = &choice["logprobs"]["token_logprobs"][0];
    value.as_f64().expect("a log-probability")
}

/// The places of a text that is read as a prompt.
fn read(server: &Server, text: &[u32]) -> Vec<Value> {
    let choice = complete(server, text, json!({"max_tokens": 1, "prompt_logprobs": 1}));
    let places = choice["prompt_logprobs"].as_array().expect("places");
    assert_eq!(places.len(), text.len());
    let places = places.iter().zip(text);
    places
        .map(|(place, id)| place[id.to_string()].clone())
        .collect()
}

/// Every position of a golden text, prompt and greedy tokens: the prompt's tokens cost what they do in f32, and no more than is golden
/// (a server knows less ids than the model has columns, so that they may cost less); each greedy token is the best one where its
/// margin is more than rounding takes.
fn check_read([npu, cpu]: [&Server; 2], golden: &Golden, margin: f64, tolerance: f64) {
    let whole = [&golden.ids[..], &golden.greedy].concat();
    let [found, exact] = [npu, cpu].map(|server| read(server, &whole));
    let cost = |place: &Value| -place["logprob"].as_f64().expect("a log-probability");
    for (at, golden) in (1..).zip(&golden.costs) {
        let (found, exact) = (cost(&found[at]), cost(&exact[at]));
        let fits = (found - exact).abs() < tolerance && found < golden + tolerance;
        assert!(fits, "token {at} costs {found}, not {exact} or {golden}");
    }
    for (at, own) in (golden.ids.len()..).zip(&golden.margins) {
        let rank = &found[at]["rank"];
        let fits = *own <= margin || *rank == 1;
        assert!(fits, "token {at}, {own} above the next, has rank {rank}");
    }
}

#[test]
fn golden_logits_and_texts_come_from_an_npu() {
    let cann = Cann::new();
    for (model, dtype, margin, tolerance, schedule) in [
        ("llama", "f16", 0.1, 0.15, "schedule=random:1"),
        ("qwen2", "bf16", 0.5, 0.5, "schedule=random:2"),
        ("qwen2", "f16", 0.1, 0.15, "schedule=random:3"),
        ("qwen3", "f16", 0.1, 0.15, "schedule=lazy"),
        ("glm4", "f16", 0.1, 0.15, "schedule=eager"),
    ] {
        let npu = cann.server(model, schedule, &["--device", "ascend:0", "--dtype", dtype]);
        let cpu = Server::start(model, &["--dtype", "f32"]);
        let mut written = 0;
        for golden in goldens(model) {
            let tokens = golden.ids.len();
            let off = first_log_probability(&npu, &golden.ids) - golden.log_probability;
            assert!(
                off.abs() < tolerance,
                "{model}, {tokens} tokens: off by {off}"
            );
            check_read([&npu, &cpu], &golden, margin, tolerance);
            // What is written ends where rounding may decide.
            let certain = golden.margins.iter().take_while(|m| **m > margin).count();
            if certain > 0 {
                let choice = complete(&npu, &golden.ids, json!({"max_tokens": certain}));
                assert_eq!(
                    choice["token_ids"],
                    json!(golden.greedy[..certain]),
                    "{model}, {tokens} tokens"
                );
                written += certain;
            }
        }
        assert!(written > 0, "{model}: else the test proves little");
    }
}

/// Writes a fixture with an MLP of 128 instead of 112, the others being zero: the same model, whose rows are whole groups of 32.
fn widen(model: &str, folder: &Path) {
    const WIDE: usize = 128;
    let source = tiny(model);
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ] {
        std::fs::copy(source.join(name), folder.join(name)).expect("a copy");
    }
    let config = std::fs::read_to_string(source.join("config.json")).expect("a config");
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    config["intermediate_size"] = json!(WIDE);
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a config");
    let file = std::fs::read(source.join("model.safetensors")).expect("weights");
    let len = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + len]).expect("JSON");
    let (mut wide, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, tensor) in header.as_object().expect("tensors") {
        if name == "__metadata__" {
            continue;
        }
        let number = |value: &Value| value.as_u64().expect("a number") as usize;
        let mut shape: Vec<usize> = tensor["shape"]
            .as_array()
            .expect("a shape")
            .iter()
            .map(number)
            .collect();
        let [from, to] = [0, 1].map(|i| 8 + len + number(&tensor["data_offsets"][i]));
        let (bytes, first) = (&file[from..to], data.len());
        let row = bytes.len() / shape[0];
        if name.ends_with("down_proj.weight") {
            for line in bytes.chunks_exact(row) {
                data.extend_from_slice(line);
                data.resize(data.len() + row / shape[1] * (WIDE - shape[1]), 0);
            }
            shape[1] = WIDE;
        } else {
            data.extend_from_slice(bytes);
            if name.contains(".mlp.") {
                data.resize(data.len() + row * (WIDE - shape[0]), 0);
                shape[0] = WIDE;
            }
        }
        let tensor =
            json!({"dtype": tensor["dtype"], "shape": shape, "data_offsets": [first, data.len()]});
        wide.insert(name.clone(), tensor);
    }
    let header = Value::Object(wide).to_string();
    let file = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &data,
    ]
    .concat();
    std::fs::write(folder.join("model.safetensors"), file).expect("weights");
}

/// Folders that `ropeteam quantize` writes, as an NPU computes them: int8 meets activations in int8 (W8A8), as on the CPU; int4 such in
/// 16 bits (W4A16), so that it comes near to what the weights mean.
#[test]
fn what_quantize_writes_is_served() {
    let cann = Cann::new();
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("wide");
    std::fs::create_dir(&model).expect("a folder");
    widen("llama", &model);
    for (to, dtype) in [("int8", "auto"), ("int4", "f32")] {
        let out = folder.path().join(to);
        let written = ropeteam()
            .args(["quantize", "--to", to, "--out"])
            .args([&out, &model])
            .output()
            .expect("it runs");
        let errors = String::from_utf8_lossy(&written.stderr);
        assert!(written.status.success(), "{errors}");
        let model = out.to_str().expect("a UTF-8 path");
        let npu = cann.server(model, "", &["--device", "ascend:0", "--dtype", "f16"]);
        let cpu = Server::start_in(&[], &["--model", model, "--dtype", dtype]);
        for golden in goldens("llama") {
            let [found, expected] =
                [&npu, &cpu].map(|server| first_log_probability(server, &golden.ids));
            let (off, tokens) = (found - expected, golden.ids.len());
            assert!(off.abs() < 0.15, "{to}, {tokens} tokens: off by {off}");
        }
    }
}
