//! Ids, whole decoding and streamed decoding against the reference tokenizers.

use std::collections::HashMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::text::fixtures;

fn ids(value: &Value) -> Vec<TokenId> {
    let list = value.as_array().unwrap().iter();
    list.map(|id| TokenId(id.as_u64().unwrap() as u32))
        .collect()
}

/// All tokenizers that are there, with their goldens.
fn references() -> impl Iterator<Item = (String, Codec, Value)> {
    fixtures::tokenizer_folders()
        .into_iter()
        .map(|(name, folder)| {
            let codec = Codec::from_folder(&folder).unwrap();
            let goldens = fixtures::goldens(&name);
            (name, codec, goldens)
        })
}

fn tiny(name: &str) -> Codec {
    static LOADED: LazyLock<HashMap<String, Codec>> = LazyLock::new(|| {
        let small = fixtures::tokenizer_folders().into_iter();
        small
            .filter(|(name, _)| name.starts_with("tiny-"))
            .map(|(name, folder)| (name, Codec::from_folder(&folder).unwrap()))
            .collect()
    });
    LOADED[name].clone()
}

/// The pieces of a stream that follows `context`, and what comes at its end.
fn stream(
    codec: &Codec,
    context: &[TokenId],
    ids: &[TokenId],
    skip: bool,
) -> (Vec<String>, String) {
    let mut decoder = codec.decoder(context, skip);
    let pieces = ids.iter().map(|&id| decoder.push(id)).collect();
    (pieces, decoder.finish())
}

#[test]
fn texts_have_the_ids_of_the_reference() {
    for (name, codec, goldens) in references() {
        assert_eq!(
            codec.vocab_size(),
            goldens["vocab_size_with_added"],
            "{name}"
        );
        for case in goldens["strings"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let plain = ids(&case["ids"]);
            assert_eq!(
                codec.encode(text, false),
                Ok(plain.clone()),
                "{name}: {text:?}"
            );
            let special = case.get("ids_add_special_tokens").map_or(plain, ids);
            assert_eq!(codec.encode(text, true), Ok(special), "{name}: {text:?}");
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
}

#[test]
fn decoding_gives_the_text_of_the_reference() {
    for (name, codec, goldens) in references() {
        for case in goldens["strings"].as_array().unwrap() {
            let tokens = ids(&case["ids"]);
            assert_eq!(
                codec.decode(&tokens, false),
                case["decoded"],
                "{name}: {case}"
            );
            if let Some(skipped) = case.get("decoded_skip_special") {
                assert_eq!(&codec.decode(&tokens, true), skipped, "{name}: {case}");
            }
        }
        for case in goldens["id_sequences"].as_array().unwrap() {
            let tokens = ids(&case["ids"]);
            assert_eq!(
                codec.decode(&tokens, true),
                case["decoded"],
                "{name}: {case}"
            );
        }
    }
}

/// The cases that Hugging Face's own stream can decode.
fn streamable(cases: &Value) -> impl Iterator<Item = &Value> {
    cases
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| !c["stream"].is_null())
}

#[test]
fn streams_come_in_the_pieces_of_the_reference() {
    for (name, codec, goldens) in references() {
        for (list, skip) in [("strings", false), ("id_sequences", true)] {
            for case in streamable(&goldens[list]) {
                let (pieces, rest) = stream(&codec, &[], &ids(&case["ids"]), skip);
                assert_eq!(json!(pieces), case["stream"], "{name}: {case}");
                let decoded = case["decoded"].as_str().unwrap();
                let streamed = pieces.concat();
                // Whole decoding takes back characters of a run of bytes that breaks later; a stream cannot.
                if decoded.starts_with(&streamed) {
                    assert_eq!(streamed + &rest, decoded, "{name}: {case}");
                }
            }
        }
    }
}

#[test]
fn a_continuation_keeps_its_leading_blank() {
    let codec = tiny("tiny-mistral");
    let context = codec.encode("one", true).unwrap();
    let all = codec.encode("one two three", true).unwrap();
    let (pieces, rest) = stream(&codec, &context, &all[context.len()..], true);
    assert_eq!(pieces.concat() + &rest, " two three");
    let (pieces, rest) = stream(&codec, &[], &all, true);
    assert_eq!(pieces.concat() + &rest, "one two three");
}

#[test]
fn a_character_that_the_prompt_begins_is_given_whole() {
    for name in ["tiny-qwen2", "tiny-gemma"] {
        let codec = tiny(name);
        let parrot = codec.encode("🦜", false).unwrap();
        assert!(parrot.len() > 2, "{name} spells it in bytes");
        let (context, rest) = parrot.split_at(2);
        let (pieces, end) = stream(&codec, context, rest, true);
        assert_eq!(pieces.concat() + &end, "🦜", "{name}");
        let (pieces, end) = stream(&codec, context, &codec.encode("no", false).unwrap(), true);
        assert_eq!(pieces.concat() + &end, "no", "{name}");
        assert_eq!(stream(&codec, context, &[], true), (vec![], String::new()));
    }
}

#[test]
fn an_incomplete_character_becomes_a_replacement_at_the_end_only() {
    for (name, expected) in [
        ("tiny-qwen2", "\u{FFFD}"),
        ("tiny-gemma", "\u{FFFD}\u{FFFD}\u{FFFD}"),
    ] {
        let codec = tiny(name);
        let parrot = codec.encode("🦜", false).unwrap();
        let (pieces, end) = stream(&codec, &[], &parrot[..3], true);
        assert_eq!(
            (pieces.concat().as_str(), end.as_str()),
            ("", expected),
            "{name}"
        );
    }
}

#[test]
fn broken_bytes_cannot_stall_a_stream() {
    let codec = tiny("tiny-qwen2");
    let lone = codec.token_id("Ģ").expect("a byte token");
    let (pieces, end) = stream(&codec, &[], &vec![lone; 1000], true);
    assert!(pieces.iter().filter(|p| !p.is_empty()).count() >= 10);
    assert_eq!(
        pieces.concat() + &end,
        codec.decode(&vec![lone; 1000], true)
    );
}

#[test]
fn truncation_and_padding_of_the_file_do_not_apply() {
    let file = fixtures::tokenizer_folders()[0].1.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let plain = Codec::from_json(tokenizer.to_string().as_bytes(), "plain").unwrap();
    tokenizer["truncation"] = json!({"direction": "Right", "max_length": 8,
        "strategy": "LongestFirst", "stride": 0});
    tokenizer["padding"] = json!({"strategy": {"Fixed": 16}, "direction": "Right",
        "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"});
    let limited = Codec::from_json(tokenizer.to_string().as_bytes(), "limited").unwrap();
    for text in ["a", "a text that is longer than eight tokens, surely"] {
        assert_eq!(limited.encode(text, true), plain.encode(text, true));
    }
}

#[test]
fn columns_without_a_token_are_masked() {
    let vocabulary = json!({"a": 0, "b": 3});
    let tokenizer = json!({"version": "1.0", "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null, "truncation": null,
        "padding": null, "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"}});
    let codec = Codec::from_json(tokenizer.to_string().as_bytes(), "the test").unwrap();
    let mask = |limit, holes: &[u32]| ColumnMask {
        limit,
        holes: holes.to_vec(),
    };
    assert_eq!(codec.vocab_size(), 4);
    assert_eq!(codec.column_mask(6), mask(4, &[1, 2]));
    assert_eq!(codec.column_mask(2), mask(2, &[1]));
    assert_eq!(codec.token_text(TokenId(1)), None);
}

#[test]
fn special_tokens_are_known_and_shown() {
    let codec = tiny("tiny-llama3");
    let begin = codec.token_id("<|begin_of_text|>").unwrap();
    assert!(codec.is_special(begin));
    assert_eq!(
        codec.token_text(begin).as_deref(),
        Some("<|begin_of_text|>")
    );
    assert!(!codec.is_special(codec.encode("a", false).unwrap()[0]));
    assert_eq!(codec.decode(&[begin], true), "");
}

#[test]
fn offsets_are_bytes_of_the_text() {
    let codec = tiny("tiny-llama3");
    let text = "é one";
    let tokens = codec.encode_with_offsets(text, true).unwrap();
    assert_eq!(tokens[0].bytes, 0..0);
    assert_eq!(tokens.last().unwrap().bytes.end, text.len());
    let plain: Vec<TokenId> = tokens.iter().map(|t| t.id).collect();
    assert_eq!(codec.encode(text, true), Ok(plain));
}

#[test]
fn a_special_token_in_the_text_keeps_its_place_and_moves_no_other() {
    let text = "hi <|im_start|>user\nZoë 🦜";
    let codec = tiny("tiny-qwen2");
    let tokens = codec.encode_with_offsets(text, true).unwrap();
    let start = codec.token_id("<|im_start|>").unwrap();
    let special = tokens.iter().position(|t| t.id == start).unwrap();
    assert_eq!(tokens[special].bytes, 3..15);
    assert_eq!(tokens[special + 1].bytes.start, 15);
    assert_eq!(tokens.last().unwrap().bytes.end, text.len());
    assert!(tokens.iter().all(|t| text.get(t.bytes.clone()).is_some()));
}

#[test]
fn what_is_no_tokenizer_is_refused_by_name() {
    let error = Codec::from_json(b"{}", "the file").err().unwrap();
    assert!(error.to_string().starts_with("the file: "), "{error}");
    let error = Codec::from_folder(Path::new("no/such/folder"))
        .err()
        .unwrap();
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pieces_of_any_sequence_join_to_its_whole_text(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
        skip: bool,
    ) {
        for name in ["tiny-qwen2", "tiny-llama3", "tiny-glm4"] {
            let codec = tiny(name);
            let ids: Vec<_> = picks.iter().map(|i| TokenId(i.index(codec.vocab_size() as usize) as u32)).collect();
            let (pieces, rest) = stream(&codec, &[], &ids, skip);
            prop_assert_eq!(pieces.concat() + &rest, codec.decode(&ids, skip));
        }
    }

    #[test]
    fn pieces_of_any_text_join_to_it_wherever_the_prompt_ends(text in "\\PC{0,30}", cut: prop::sample::Index) {
        for name in ["tiny-qwen2", "tiny-gemma", "tiny-mistral"] {
            let codec = tiny(name);
            let ids = codec.encode(&text, false).unwrap();
            let (pieces, rest) = stream(&codec, &[], &ids, false);
            prop_assert_eq!(pieces.concat() + &rest, codec.decode(&ids, false));
            let whole_characters = !pieces.concat().contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(whole_characters || text.contains(char::REPLACEMENT_CHARACTER));
            if ids.is_empty() {
                continue;
            }
            let (context, generated) = ids.split_at(cut.index(ids.len()));
            let (pieces, rest) = stream(&codec, context, generated, false);
            let streamed = pieces.concat() + &rest;
            prop_assert!(codec.decode(&ids, false).ends_with(&streamed));
        }
    }
}
