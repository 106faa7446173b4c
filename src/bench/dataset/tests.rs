//! Tests of all datasets through their one entrance.

use super::*;
use serde_json::json;
use std::path::Path;

fn plan(kind: DatasetKind) -> DatasetPlan {
    DatasetPlan {
        kind,
        path: None,
        requests: None,
        input_len: Lengths::Fixed(16),
        shared_prefix: 0,
        prompt_as: PromptAs::Text,
        ids: IdRange::default(),
        output_len: None,
        max_output_len: None,
        seed: 1,
    }
}

fn from_text(kind: DatasetKind, text: &str) -> Result<Vec<Sample>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.jsonl");
    std::fs::write(&path, text).unwrap();
    let plan = DatasetPlan {
        path: Some(folder.path().to_owned()),
        ..plan(kind)
    };
    plan.samples(None).map_err(|error| error.to_string())
}

fn tokenizer() -> Tokens {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/text/tokenizers/qwen2");
    Tokens::open(&folder).unwrap()
}

#[test]
fn json_lines_hold_texts_ids_or_turns() {
    let text = r#"{"prompt": "hello", "max_tokens": 5}

{"prompt": [1, 2, 3]}
{"messages": [{"role": "user", "content": "hi"}]}"#;
    let samples = from_text(DatasetKind::Jsonl, text).unwrap();
    let turns = json!([{"role": "user", "content": "hi"}]);
    let prompts: Vec<_> = samples.iter().map(|sample| sample.prompt.clone()).collect();
    assert_eq!(
        prompts,
        [
            Prompt::Text("hello".into()),
            Prompt::Ids(vec![1, 2, 3]),
            Prompt::Messages(turns)
        ]
    );
    let lengths: Vec<_> = samples.iter().map(|sample| sample.output_len).collect();
    assert_eq!(lengths, [5, DEFAULT_OUTPUT, DEFAULT_OUTPUT]);
}

#[test]
fn a_line_that_cannot_be_used_is_named() {
    for (text, problem) in [
        (
            "{\"prompt\": \"a\"}\n{\"prompt\": 5}",
            "line 2: expected \"prompt\"",
        ),
        ("{\"prompt\": [-1]}", "line 1: -1 is no token id"),
        ("{\"prompt\": \"a\", \"max_tokens\": 0}", "max_tokens"),
        (
            "{",
            "line 1: no JSON: EOF while parsing an object at column 1",
        ),
        ("\n", "it holds no prompt"),
        ("\u{1f}", "line 1"),
    ] {
        let error = from_text(DatasetKind::Jsonl, text).unwrap_err();
        assert!(
            error.contains(problem) && error.contains("data.jsonl"),
            "{error}"
        );
    }
}

#[test]
fn the_known_formats_are_read() {
    let code =
        r#"{"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": ""}"#;
    let samples = from_text(DatasetKind::HumanEval, code).unwrap();
    assert_eq!(samples[0].prompt, Prompt::Text("def f():\n".into()));
    let problem = r#"{"question": "1+1?", "answer": "2\n#### 2"}"#;
    let samples = from_text(DatasetKind::Gsm8k, problem).unwrap();
    assert_eq!(
        samples[0].prompt,
        Prompt::Text("Question: 1+1?\nAnswer:".into())
    );
    let talk = r#"[{"id":"a","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"hello you"}]},
        {"id":"b","conversations":[{"from":"gpt","value":"no question"}]},{"id":"c","conversations":[]}]"#;
    let samples = from_text(DatasetKind::ShareGpt, talk).unwrap();
    assert_eq!(samples.len(), 1);
    let entries = sharegpt::entries(talk, Some(&tokenizer())).unwrap();
    assert_eq!(
        entries[0].output_len,
        Some(tokenizer().count("hello you", false))
    );
}

#[test]
fn a_file_is_gone_through_again_when_more_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.jsonl");
    std::fs::write(&path, "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}").unwrap();
    let plan = DatasetPlan {
        path: Some(path),
        requests: Some(5),
        ..plan(DatasetKind::Jsonl)
    };
    assert_eq!(plan.samples(None).unwrap().len(), 5);
}

#[test]
fn random_prompts_share_their_prefix_and_nothing_else() {
    let tokens = tokenizer();
    for (prompt_as, tokens) in [
        (PromptAs::Text, Some(&tokens)),
        (PromptAs::Ids, Some(&tokens)),
        (PromptAs::Ids, None),
    ] {
        let plan = DatasetPlan {
            shared_prefix: 20,
            requests: Some(3),
            prompt_as,
            ..plan(DatasetKind::Random)
        };
        let samples = plan.samples(tokens).unwrap();
        assert_eq!(samples, plan.samples(tokens).unwrap(), "the seed decides");
        assert!(
            samples
                .iter()
                .all(|sample| sample.prompt_tokens == Some(36))
        );
        if let (Prompt::Ids(a), Prompt::Ids(b)) = (&samples[0].prompt, &samples[1].prompt) {
            assert_eq!(a[..20], b[..20]);
            assert_ne!(a[20..], b[20..]);
        }
    }
}

#[test]
fn flags_that_do_not_fit_are_refused() {
    let with_path = DatasetPlan {
        path: Some("x.jsonl".into()),
        ..plan(DatasetKind::Random)
    };
    let without = plan(DatasetKind::HumanEval);
    let prefix = DatasetPlan {
        shared_prefix: 5,
        ..plan(DatasetKind::Gsm8k)
    };
    for (plan, word) in [
        (with_path, "--dataset-path"),
        (without, "--dataset-path"),
        (prefix, "--shared-prefix"),
    ] {
        let error = plan.samples(None).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn the_bound_on_answers_holds_and_is_the_length_where_none_is_known() {
    let samples = |output_len: Option<&str>, max| {
        let plan = DatasetPlan {
            output_len: output_len.map(|word| word.parse().unwrap()),
            max_output_len: max,
            requests: Some(20),
            ..plan(DatasetKind::Random)
        };
        let samples = plan.samples(None).unwrap();
        samples.iter().map(|s| s.output_len).max().unwrap()
    };
    assert_eq!(samples(None, Some(512)), 512);
    assert_eq!(samples(Some("9"), Some(512)), 9);
    assert_eq!(samples(Some("100..900"), Some(300)), 300);
    assert_eq!(samples(None, None), DEFAULT_OUTPUT);
}
