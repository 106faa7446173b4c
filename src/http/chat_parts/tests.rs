//! The parts of answers as models write them; cutting them into other pieces changes nothing.

use super::*;
use proptest::prelude::*;

const NAMES: [&str; 2] = ["get_weather", "add"];

fn reading(format: CallFormat) -> Reading {
    Reading {
        thinking: None,
        shows_thoughts: true,
        calls: Some(Calls {
            format,
            names: NAMES.map(str::to_owned).into(),
            texts: [("get_weather".to_owned(), "city".to_owned())].into(),
            one_only: false,
        }),
    }
}

fn thinking(begins: Thinking) -> Reading {
    Reading {
        thinking: Some(begins),
        shows_thoughts: true,
        calls: None,
    }
}

/// Joins neighbours of the same kind.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match (all.last_mut(), part) {
            (Some(Part::Thought(last)), Part::Thought(more))
            | (Some(Part::Text(last)), Part::Text(more))
            | (Some(Part::Arguments(last)), Part::Arguments(more)) => last.push_str(&more),
            (_, part) => all.push(part),
        }
    }
    all
}

/// The parts of an answer that comes in those pieces, and whether it has (complete) calls.
fn read(reading: &Reading, pieces: &[&str]) -> (Vec<Part>, bool) {
    let mut reader = reading.reader();
    let mut parts: Vec<Part> = pieces.iter().flat_map(|piece| reader.push(piece)).collect();
    parts.extend(reader.finish());
    (joined(parts), reader.has_calls())
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn thought(text: &str) -> Part {
    Part::Thought(text.to_owned())
}

fn call(name: &str, arguments: &str) -> [Part; 2] {
    [
        Part::Call(name.to_owned()),
        Part::Arguments(arguments.to_owned()),
    ]
}

/// As a whole and character by character.
fn check(reading: &Reading, answer: &str, expected: &[Part], complete: bool) {
    let expected = (expected.to_vec(), complete);
    assert_eq!(read(reading, &[answer]), expected, "{answer}");
    let characters: Vec<String> = answer.chars().map(String::from).collect();
    let pieces: Vec<&str> = characters.iter().map(String::as_str).collect();
    assert_eq!(read(reading, &pieces), expected, "{answer}, by characters");
}

#[test]
fn every_format_gives_name_and_arguments_as_they_were_written() {
    let weather = call("get_weather", r#"{"town": "Zü{\"rich"}"#);
    let add = call("add", r#"{"a": [1, {}]}"#);
    let both = [weather.clone(), add.clone()].concat();
    for (format, answer) in [
        (
            CallFormat::Hermes,
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"town\": \"Zü{\\\"rich\"}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"a\": [1, {}]}, \"name\": \"add\"}\n</tool_call>",
        ),
        (
            CallFormat::Llama3,
            "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"town\": \"Zü{\\\"rich\"}}; {\"name\": \"add\", \"parameters\": {\"a\": [1, {}]}}",
        ),
        (
            CallFormat::Llama3,
            "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"town\": \"Zü{\\\"rich\"}};{\"name\":\"add\",\"parameters\":{\"a\": [1, {}]}}",
        ),
        (
            CallFormat::Mistral,
            "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"town\": \"Zü{\\\"rich\"}}, {\"name\": \"add\", \"arguments\": {\"a\": [1, {}]}}]",
        ),
        (
            CallFormat::Mistral,
            "[TOOL_CALLS]get_weather[CALL_ID]abc[ARGS]{\"town\": \"Zü{\\\"rich\"}[TOOL_CALLS]add{\"a\": [1, {}]}",
        ),
        (
            CallFormat::Json,
            " [{\"name\": \"get_weather\", \"arguments\": {\"town\": \"Zü{\\\"rich\"}}, {\"name\": \"add\", \"arguments\": \"{\\\"a\\\": [1, {}]}\"}]",
        ),
    ] {
        check(&reading(format), answer, &both, true);
    }
    let answer = "get_weather\n{\"town\": \"Zü{\\\"rich\"}";
    check(&reading(CallFormat::Glm4), answer, &weather, true);
    check(
        &reading(CallFormat::Arguments),
        " {\"town\": \"Zü{\\\"rich\"}",
        &weather,
        true,
    );
}

#[test]
fn text_stands_beside_calls() {
    let answer = "Let me see.\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call> Done.";
    let expected = [
        &[text("Let me see.")][..],
        &call("add", "{}"),
        &[text(" Done.")],
    ]
    .concat();
    check(&reading(CallFormat::Hermes), answer, &expected, true);
    for format in [
        CallFormat::Hermes,
        CallFormat::Llama3,
        CallFormat::Glm4,
        CallFormat::Glm45,
        CallFormat::Json,
    ] {
        for plain in ["No { call [here", " ", "", "a < b\n", "Say add\n{}"] {
            let expected: &[Part] = if plain.is_empty() {
                &[]
            } else {
                &[text(plain)]
            };
            check(&reading(format), plain, expected, false);
        }
    }
}

#[test]
fn what_is_no_call_after_all_is_text_to_the_last_character() {
    for (format, answer) in [
        (
            CallFormat::Hermes,
            "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>",
        ),
        (CallFormat::Hermes, "<tool_call>no object</tool_call>"),
        (CallFormat::Hermes, "<tool_call>{\"nam"),
        (CallFormat::Json, "{\"answer\": 42}"),
        (CallFormat::Json, "[1, 2, 3]"),
        (CallFormat::Json, "{\"name\": 7}"),
        (CallFormat::Llama3, "{broken"),
        (CallFormat::Mistral, "[TOOL_CALLS] [{\"name\": \"x\"}]"),
        (CallFormat::Glm4, "get_weather is a tool"),
        (CallFormat::Glm45, "<tool_call>unknown\n</tool_call>"),
        (CallFormat::Glm45, "<tool_call>add it up"),
        (CallFormat::Glm45, "add<arg_key>a</arg_key>"),
    ] {
        check(&reading(format), answer, &[text(answer)], false);
    }
}

#[test]
fn arguments_between_tags_become_json() {
    let glm = reading(CallFormat::Glm45);
    let answer = "Let me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>12 Ä\"\n</arg_value>\n\
        <arg_key>days</arg_key>\n<arg_value>[1, 2]</arg_value>\n<arg_key>unit</arg_key><arg_value>degrees</arg_value>\n</tool_call>\n\
        <tool_call>add</tool_call> Done.";
    let weather = "{\"city\": \"12 Ä\\\"\\n\", \"days\": [1, 2], \"unit\": \"degrees\"}";
    let expected = [
        &[text("Let me see.")][..],
        &call("get_weather", weather),
        &call("add", "{}"),
        &[text(" Done.")],
    ]
    .concat();
    check(&glm, answer, &expected, true);
    // A number where a string is declared is a string.
    let answer =
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>12</arg_value></tool_call>";
    check(
        &glm,
        answer,
        &call("get_weather", "{\"city\": \"12\"}"),
        true,
    );
    for broken in [
        "<arg_key>b</arg_key><arg_va",
        "<arg_key>b</arg_key><arg_value>x",
        "<arg",
    ] {
        let answer = format!("<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value>{broken}");
        check(&glm, &answer, &call("add", "{\"a\": 1"), false);
    }
    let answer = "<tool_call>add<arg_key>a</arg_key>oops";
    let [name, _] = call("add", "");
    check(&glm, answer, &[name, text("oops")], false);
}

#[test]
fn a_call_without_arguments_has_empty_ones() {
    let answer = "<tool_call>{\"name\": \"add\"}</tool_call>";
    check(
        &reading(CallFormat::Hermes),
        answer,
        &call("add", "{}"),
        true,
    );
    let answer = "{\"name\": \"add\", \"arguments\": null}";
    check(&reading(CallFormat::Json), answer, &call("add", "{}"), true);
}

#[test]
fn a_call_that_breaks_off_is_not_complete() {
    let answer = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1";
    check(
        &reading(CallFormat::Hermes),
        answer,
        &call("add", "{\"a\": 1"),
        false,
    );
    check(
        &reading(CallFormat::Arguments),
        "{\"a\"",
        &call("get_weather", "{\"a\""),
        false,
    );
}

#[test]
fn thoughts_are_parted_from_text() {
    let from_tag = thinking(Thinking::FromTag);
    let both = [thought("Hm,\nlet me"), text("It is 4.")];
    check(
        &from_tag,
        "<think>\nHm,\nlet me\n</think>\n\nIt is 4.",
        &both,
        false,
    );
    check(
        &from_tag,
        "\n<think>Hm,\nlet me</think>It is 4.",
        &both,
        false,
    );
    check(
        &from_tag,
        "It <think>is</think> 4.",
        &[text("It <think>is</think> 4.")],
        false,
    );
    check(
        &from_tag,
        "<think>\n\n</think>\n\nIt is 4.",
        &[text("It is 4.")],
        false,
    );
    check(&from_tag, "<think>Hm", &[thought("Hm")], false);
    check(&from_tag, "<th", &[text("<th")], false);
    let at_once = thinking(Thinking::AtOnce);
    check(&at_once, "Hm,\nlet me\n</think>\n\nIt is 4.", &both, false);
    check(
        &at_once,
        "<think>\nHm,\nlet me\n</think>It is 4.",
        &both,
        false,
    );
    check(&at_once, "Hm </thin", &[thought("Hm </thin")], false);
}

#[test]
fn the_prompt_may_have_begun_the_thoughts_or_ended_them() {
    for (prompt, expected) in [
        ("<|assistant|>\n", Some(Thinking::FromTag)),
        ("<|assistant|>\n<think>\n", Some(Thinking::AtOnce)),
        ("<|assistant|>\n<think>\n\n</think>\n\n", None),
    ] {
        assert_eq!(Thinking::FromTag.after(prompt), expected, "{prompt}");
    }
}

#[test]
fn thoughts_are_counted_by_tokens() {
    let texts = ["<think>", "a", "b", "</think>", "c"];
    let count = |begins| thinking(begins).thought_tokens(texts.into_iter());
    assert_eq!((count(Thinking::FromTag), count(Thinking::AtOnce)), (3, 4));
    assert_eq!(
        reading(CallFormat::Json).thought_tokens(texts.into_iter()),
        0
    );
}

#[test]
fn calls_in_thoughts_are_thoughts() {
    let reading = Reading {
        thinking: Some(Thinking::FromTag),
        ..reading(CallFormat::Hermes)
    };
    let object = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    let answer = format!("<think>{object}</think>\n{object}");
    let expected = [&[thought(object)][..], &call("add", "{}")].concat();
    check(&reading, &answer, &expected, true);
}

fn any_format() -> impl Strategy<Value = CallFormat> {
    prop::sample::select(vec![
        CallFormat::Hermes,
        CallFormat::Llama3,
        CallFormat::Mistral,
        CallFormat::Glm4,
        CallFormat::Glm45,
        CallFormat::Json,
        CallFormat::Arguments,
    ])
}

proptest! {
    #[test]
    fn cutting_an_answer_otherwise_changes_no_part(
        format in any_format(),
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "<|python_tag|>", "{\"name\": ", "\"add\"", ", ",
                "\"arguments\": ", "{\"a\": 1}", "{", "}", "[", "]", "\n", " ", "add", "ä", "\"", "\\", ";", "<t", "null",
                "<arg_key>a</arg_key>", "<arg_value>", "</arg_value>",
            ]),
            0..14,
        ),
        begins in prop::sample::select(vec![None, Some(Thinking::FromTag), Some(Thinking::AtOnce)]),
    ) {
        let reading = Reading { thinking: begins, ..reading(format) };
        let whole = pieces.concat();
        let characters: Vec<String> = whole.chars().map(String::from).collect();
        let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
        let expected = read(&reading, &[&whole]);
        prop_assert_eq!(&read(&reading, &pieces), &expected, "{:?}", whole);
        prop_assert_eq!(&read(&reading, &characters), &expected, "{:?}", whole);
    }
}

#[test]
fn a_call_is_one_from_its_name_on_however_it_goes_on() {
    let answer = "[TOOL_CALLS]{\"name\": \"add\"<tool_call>";
    let told = vec![Part::Call("add".to_owned()), text("<tool_call>")];
    check(&reading(CallFormat::Mistral), answer, &told, false);
}

#[test]
fn where_one_call_is_wanted_nothing_comes_behind_it() {
    let one = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    let answer = format!("So:{one}{one} Done.");
    let mut reading = reading(CallFormat::Hermes);
    let is_call = |part: &&Part| matches!(part, Part::Call(_));
    assert_eq!(
        read(&reading, &[&answer]).0.iter().filter(is_call).count(),
        2
    );
    if let Some(calls) = &mut reading.calls {
        calls.one_only = true;
    }
    let [name, arguments] = call("add", "{}");
    let expected = (vec![text("So:"), name, arguments], true);
    assert_eq!(read(&reading, &[&answer]), expected);
    let (before, behind) = answer.split_at(answer.len() - 20);
    assert_eq!(read(&reading, &[before, behind]), expected);
}
