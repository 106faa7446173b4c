//! Whole walks through grammars: whatever is chosen among the allowed tokens, the text obeys; and a walk can be taken up anywhere.

use super::*;
use crate::text::Codec;
use proptest::prelude::*;
use regex::Regex;
use ropeteam_engine::text::TextCodec;
use serde_json::{Value, json};
use std::path::Path;

/// Longest walk; what is looked for here ends well before.
const STEPS_MAX: usize = 400;

fn codec(name: &str) -> Codec {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/text/tokenizers");
    Codec::from_folder(&folder.join(name)).unwrap()
}

/// A byte-level and a SentencePiece tokenizer, each with its first special token as the end of a text.
fn all_grammars() -> Vec<Grammars> {
    let with_end = |name: &str| {
        let codec = codec(name);
        let special = (0..codec.vocab_size()).map(TokenId);
        let eos = special.filter(|&id| codec.is_special(id)).take(1).collect();
        Grammars::new(Arc::new(codec), eos)
    };
    ["qwen2", "mistral"].map(with_end).into()
}

fn json_spec(schema: Value) -> GrammarSpec {
    GrammarSpec::Json {
        schema: schema.to_string(),
        whitespace: Whitespace::Short,
    }
}

/// Walks with `seed` deciding; checks on the way that the state can be begun anew from the tokens so far.
fn walk(grammars: &Grammars, spec: &GrammarSpec, seed: u64) -> Option<String> {
    let constraint = grammars.compile(spec).unwrap();
    let (mut state, mut output, mut bytes) = (constraint.begin(&[]), Vec::new(), Vec::new());
    let mut random = seed;
    for _ in 0..STEPS_MAX {
        let mask = state.mask().unwrap();
        if random.is_multiple_of(7) {
            assert_eq!(constraint.begin(&output).mask(), Ok(mask.clone()));
        }
        let ids = (0..grammars.codec.vocab_size()).map(TokenId);
        let allowed: Vec<TokenId> = ids.filter(|&id| mask.allows(id)).collect();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let id = allowed[(random >> 33) as usize % allowed.len()];
        if grammars.eos_ids.contains(&id) {
            return Some(String::from_utf8(bytes).unwrap());
        }
        assert!(!grammars.codec.is_special(id), "a special token is no text");
        bytes.extend(grammars.codec.token_bytes(id).unwrap());
        output.push(id);
        state.push(id);
    }
    None
}

fn check_error(spec: GrammarSpec, words: &str) {
    let error = all_grammars()[0].compile(&spec).expect_err(words);
    assert!(error.to_string().contains(words), "{spec:?}: {error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_walk_through_a_schema_ends_in_a_value_that_satisfies_it(seed: u64) {
        let spec = json_spec(json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 5},
                "size": {"type": "integer", "minimum": 3, "maximum": 12},
                "kind": {"enum": ["ä\"\n", 7, null]},
                "list": {"type": "array", "items": {"$ref": "#/$defs/flag"}, "maxItems": 3}
            },
            "required": ["name", "size", "kind"],
            "additionalProperties": false,
            "$defs": {"flag": {"type": "boolean"}}
        }));
        for grammars in all_grammars() {
            let text = walk(&grammars, &spec, seed).expect("an end");
            let value: Value = serde_json::from_str(&text).unwrap();
            prop_assert!(value["name"].as_str().unwrap().chars().count() <= 5, "{}", text);
            prop_assert!((3..=12).contains(&value["size"].as_i64().unwrap()), "{}", text);
            let kinds = [json!("ä\"\n"), json!(7), Value::Null];
            prop_assert!(kinds.contains(&value["kind"]), "{}", text);
            let flags = value.get("list").map_or(&[][..], |list| list.as_array().unwrap());
            prop_assert!(flags.len() <= 3 && flags.iter().all(Value::is_boolean), "{}", text);
            let known = ["name", "size", "kind", "list"];
            prop_assert!(value.as_object().unwrap().keys().all(|k| known.contains(&k.as_str())));
        }
    }

    #[test]
    fn every_walk_through_an_expression_ends_in_a_match(seed: u64) {
        let expression = r"^(\d{2}|[a-c/]{1,3})-é?[^x]x$";
        let whole = Regex::new(expression).unwrap();
        for grammars in all_grammars() {
            let text = walk(&grammars, &GrammarSpec::Regex(expression.into()), seed);
            let text = text.expect("an end");
            prop_assert!(whole.is_match(&text), "{}", text);
        }
    }

    #[test]
    fn every_walk_through_choices_or_a_grammar_ends_in_one_of_its_texts(seed: u64) {
        let texts = ["yes", "no", "a \"quoted\"\\ one\n", "né"].map(str::to_owned);
        let lark = "start: \"(\" start \")\" | NUMBER\nNUMBER: /[0-9]{1,2}/\n";
        let ebnf = "root ::= \"(\" root \")\" | num\nnum ::= [0-9]{1,2}\n";
        for grammars in all_grammars() {
            let choice = walk(&grammars, &GrammarSpec::Choice(texts.to_vec()), seed).expect("an end");
            prop_assert!(texts.contains(&choice), "{}", choice);
            for grammar in [lark, ebnf] {
                let Some(text) = walk(&grammars, &GrammarSpec::Grammar(grammar.into()), seed) else {
                    continue;
                };
                let number = text.trim_start_matches('(').trim_end_matches(')');
                prop_assert!(number.parse::<u8>().is_ok(), "{}", text);
                let opened = text.matches('(').count();
                prop_assert_eq!(text.matches(')').count(), opened);
            }
        }
    }
}

#[test]
fn whitespace_is_bounded_or_none_or_as_asked() {
    let schema = r#"{"enum": [[1, {"a": 2}]]}"#.to_owned();
    let spaced = |whitespace| GrammarSpec::Json {
        schema: schema.clone(),
        whitespace,
    };
    for seed in 0..8 {
        for grammars in all_grammars() {
            let text = walk(&grammars, &spaced(Whitespace::None), seed);
            assert_eq!(text.as_deref(), Some(r#"[1,{"a":2}]"#));
            let text = walk(&grammars, &spaced(Whitespace::Short), seed).unwrap();
            assert!(text.len() <= 11 + 10 * 6, "{text}");
            let tabs = spaced(Whitespace::Pattern("\t".into()));
            let text = walk(&grammars, &tabs, seed).unwrap();
            assert!(!text.contains([' ', '\n']), "{text}");
        }
    }
}

#[test]
fn what_cannot_be_followed_is_refused_with_a_reason() {
    let endless = json!({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]});
    check_error(json_spec(endless), "demands itself");
    check_error(json_spec(json!({"type": "strin"})), "strin");
    check_error(json_spec(json!({"$ref": "#/$defs/none"})), "#/$defs/none");
    check_error(json_spec(json!({"$ref": "http://a/b"})), "http://a/b");
    check_error(
        json_spec(json!({"type": "integer", "minimum": 2, "maximum": 1})),
        "minimum",
    );
    check_error(json_spec(json!({"uniqueItems": true})), "uniqueItems");
    check_error(GrammarSpec::Regex("(a".into()), "unclosed");
    check_error(
        GrammarSpec::Regex(r"[^\s\S]".into()),
        "no text satisfies it",
    );
    check_error(GrammarSpec::Choice(vec![]), "at least one");
    check_error(GrammarSpec::Grammar("start: gone\n".into()), "gone");
    check_error(GrammarSpec::Grammar("root ::= [a".into()), "`[`");
    check_error(GrammarSpec::Grammar(String::new()), "");
    check_error(GrammarSpec::Regex("(".repeat(1000)), "nesting");
    check_error(GrammarSpec::Regex("a".repeat(TEXT_BYTES_MAX + 1)), "length");
    check_error(
        GrammarSpec::Choice(vec!["a".into(); TEXT_BYTES_MAX]),
        "length",
    );
}

#[test]
fn a_model_whose_tokens_are_no_bytes_or_that_never_ends_follows_none() {
    let codec = codec("qwen2");
    let endless = Grammars::new(Arc::new(codec), vec![]);
    let error = endless.compile(&GrammarSpec::json_object()).unwrap_err();
    assert!(matches!(error, GrammarError::Model(_)), "{error}");
}

#[test]
fn the_same_grammar_is_compiled_once_and_an_old_one_forgotten() {
    let grammars = &all_grammars()[0];
    let spec = |n: usize| GrammarSpec::Choice(vec![format!("{n}")]);
    let first = grammars.compile(&spec(0)).unwrap();
    assert!(Arc::ptr_eq(&first, &grammars.compile(&spec(0)).unwrap()));
    for n in 1..=KEPT {
        grammars.compile(&spec(n)).unwrap();
    }
    assert!(!Arc::ptr_eq(&first, &grammars.compile(&spec(0)).unwrap()));
    assert_eq!(grammars.kept.lock().unwrap().len(), KEPT);
}
