//! Tokenizers written as GGUF metadata give the ids of the tokenizer.json that they were written from.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use ropeteam_engine::text::TextCodec;

use serde_json::Value;

use super::*;
use crate::checkpoint::GgufValue;
use crate::text::fixtures;

/// What a converter would write for a tokenizer.json.
fn converted(tokenizer: &Value, pre: Option<&str>) -> Vec<(String, GgufValue)> {
    let added = tokenizer["added_tokens"].as_array().unwrap();
    let model = &tokenizer["model"];
    let mut tokens: Vec<(u64, String)> = model["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap(), token.clone()))
        .chain(added.iter().map(|t| {
            let text = t["content"].as_str().unwrap().to_owned();
            (t["id"].as_u64().unwrap(), text)
        }))
        .collect();
    tokens.sort();
    tokens.dedup();
    let count = tokens.last().unwrap().0 as usize + 1;
    let mut texts: Vec<String> = (0..count).map(|i| format!("[PAD{i}]")).collect();
    let mut kinds = vec![5; count];
    for (id, text) in tokens {
        kinds[id as usize] = if text.starts_with("<0x") { 6 } else { 1 };
        texts[id as usize] = text;
    }
    for token in added {
        let special = token["special"].as_bool().unwrap();
        kinds[token["id"].as_u64().unwrap() as usize] = if special { 3 } else { 4 };
    }
    let merges = merges_of(model);
    let mut pairs = vec![("token_type", GgufValue::Ints(kinds))];
    match pre {
        Some(pre) => pairs.extend([
            ("model", GgufValue::Text("gpt2".to_owned())),
            ("pre", GgufValue::Text(pre.to_owned())),
            ("merges", GgufValue::Texts(merges)),
        ]),
        None => pairs.extend([
            ("model", GgufValue::Text("llama".to_owned())),
            ("scores", GgufValue::Floats(scores_of(&merges, &texts))),
        ]),
    }
    pairs.push(("tokens", GgufValue::Texts(texts)));
    pairs
        .into_iter()
        .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
        .collect()
}

/// Merges are listed as `"a b"` or as pairs.
fn merges_of(model: &Value) -> Vec<String> {
    let merges = model["merges"].as_array().unwrap().iter();
    merges
        .map(|merge| match merge.as_str() {
            Some(text) => text.to_owned(),
            None => format!(
                "{} {}",
                merge[0].as_str().unwrap(),
                merge[1].as_str().unwrap()
            ),
        })
        .collect()
}

/// The earlier a token is merged, the better its score.
fn scores_of(merges: &[String], texts: &[String]) -> Vec<f32> {
    let mut first = HashMap::new();
    for (rank, merge) in merges.iter().enumerate() {
        first.entry(merge.replacen(' ', "", 1)).or_insert(rank);
    }
    let score = |text| first.get(text).map_or(0.0, |&rank| -(rank as f32));
    texts.iter().map(score).collect()
}

fn build(pairs: Vec<(String, GgufValue)>) -> Result<GgufText, TokenizerError> {
    GgufText::from_metadata(&pairs.into_iter().collect(), "the file")
}

/// The name under `tokenizer.ggml.pre` for each reference tokenizer, `None` for SentencePiece.
const PRE: [(&str, Option<&str>); 11] = [
    ("tiny-qwen2", Some("qwen2")),
    ("tiny-llama3", Some("llama-bpe")),
    ("tiny-glm4", Some("chatglm-bpe")),
    ("tiny-mistral", None),
    ("tiny-gemma", None),
    ("qwen2_5", Some("qwen2")),
    ("qwen3", Some("qwen2")),
    ("llama3_1", Some("llama-bpe")),
    ("deepseek_v3", Some("deepseek-v3")),
    ("llama2", None),
    ("gemma3", None),
];

#[test]
fn metadata_give_the_ids_of_the_tokenizer_they_were_written_from() {
    for (name, folder) in fixtures::tokenizer_folders() {
        let (_, pre) = PRE.iter().find(|(n, _)| *n == name).unwrap();
        let bytes = fs::read(folder.join("tokenizer.json")).unwrap();
        let mut pairs = converted(&serde_json::from_slice(&bytes).unwrap(), *pre);
        let no_prefix = name.contains("gemma");
        pairs.push((
            "tokenizer.ggml.add_space_prefix".to_owned(),
            GgufValue::Bool(!no_prefix),
        ));
        let codec = build(pairs).unwrap().codec;
        check_ids(&codec, &fixtures::goldens(&name), &name);
    }
}

fn check_ids(codec: &Codec, goldens: &Value, name: &str) {
    let ids = |value: &Value| -> Vec<TokenId> { serde_json::from_value(value.clone()).unwrap() };
    for case in goldens["strings"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(
            codec.encode(text, false),
            Ok(ids(&case["ids"])),
            "{name}: {text:?}"
        );
        assert_eq!(
            codec.decode(&ids(&case["ids"]), false),
            case["decoded"],
            "{name}: {text:?}"
        );
    }
    for chat in goldens["chats"].as_array().into_iter().flatten() {
        if let Some(rendered) = chat["rendered"].as_str() {
            assert_eq!(
                codec.encode(rendered, false),
                Ok(ids(&chat["ids"])),
                "{name}"
            );
        }
    }
}

/// Metadata of a vocabulary of four tokens.
fn small() -> Vec<(String, GgufValue)> {
    let texts = |list: &[&str]| GgufValue::Texts(list.iter().map(|t| t.to_string()).collect());
    [
        ("model", GgufValue::Text("gpt2".to_owned())),
        ("pre", GgufValue::Text("gpt-2".to_owned())),
        (
            "tokens",
            texts(&["a", "b", "ab", "<|im_end|>", "[PAD4]", "</s>"]),
        ),
        ("token_type", GgufValue::Ints(vec![1, 1, 1, 3, 5, 3])),
        ("merges", texts(&["a b"])),
        ("bos_token_id", GgufValue::Int(3)),
        ("eos_token_id", GgufValue::Int(5)),
        ("add_bos_token", GgufValue::Bool(true)),
    ]
    .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
    .to_vec()
}

fn with(key: &str, value: GgufValue) -> Vec<(String, GgufValue)> {
    let mut pairs = small();
    pairs.retain(|(k, _)| k != key);
    pairs.push((key.to_owned(), value));
    pairs
}

#[test]
fn special_and_unused_tokens_are_known() {
    let text = build(small()).unwrap();
    assert_eq!(
        text.codec.encode("ab", true),
        Ok(vec![TokenId(3), TokenId(2)])
    );
    assert_eq!(text.codec.column_mask(8).holes, [4]);
    assert_eq!(text.codec.column_mask(8).limit, 6);
    assert_eq!(text.end_ids, [TokenId(5), TokenId(3)]);
    assert_eq!(text.special_tokens.get("eos_token"), Some("</s>"));
    assert!(!text.chat_template().unwrap().exists());
}

#[test]
fn the_templates_of_the_file_are_used() {
    let mut pairs = with(
        "tokenizer.chat_template",
        GgufValue::Text("{{ bos_token }}".to_owned()),
    );
    let broken = GgufValue::Text("\n{% if %}".to_owned());
    assert!(
        build(pairs.clone())
            .unwrap()
            .chat_template()
            .unwrap()
            .exists()
    );
    pairs.push(("tokenizer.chat_template.tool_use".to_owned(), broken));
    let error = build(pairs).unwrap().chat_template().err().unwrap();
    assert!(
        error
            .to_string()
            .contains("the file, tokenizer.chat_template, line 2"),
        "{error}"
    );
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    let text = |t: &str| GgufValue::Text(t.to_owned());
    for (key, value, named) in [
        ("tokenizer.ggml.pre", text("superbpe"), "superbpe"),
        ("tokenizer.ggml.model", text("t5"), "t5"),
        (
            "tokenizer.ggml.token_type",
            GgufValue::Ints(vec![1]),
            "token_type",
        ),
        ("tokenizer.ggml.merges", text("none"), "merges"),
        ("tokenizer.ggml.tokens", text("none"), "tokens"),
    ] {
        let error = build(with(key, value)).err().expect(key).to_string();
        assert!(
            error.contains("the file") && error.contains(named),
            "{error}"
        );
    }
}

#[test]
fn the_default_model_gives_the_ids_of_the_reference() {
    let places = crate::source::Places::from_env().unwrap();
    let Some(file) = crate::source::cached_default(&places) else {
        eprintln!("NOT TESTED on the default model: it is not in the cache");
        return;
    };
    check_default(&file);
}

fn check_default(file: &Path) {
    let checkpoint = crate::Checkpoint::open(file).unwrap();
    let text = GgufText::from_metadata(checkpoint.gguf().unwrap(), "the default model").unwrap();
    let goldens = fixtures::goldens("smollm2");
    assert_eq!(text.codec.vocab_size(), goldens["vocab_size_with_added"]);
    check_ids(&text.codec, &goldens, "smollm2");
    assert!(text.chat_template().unwrap().exists());
}
