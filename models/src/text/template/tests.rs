//! The reference renderings, where templates stand, and what a hostile template cannot do.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::civil::date;
use serde_json::json;

use super::*;
use crate::text::fixtures;

fn template(source: &str) -> ChatTemplate {
    compiled(source).unwrap()
}

fn compiled(source: &str) -> Result<ChatTemplate, TemplateError> {
    ChatTemplate::from_source(source, "the test", &SpecialTokens::default())
}

fn clock() -> Clock {
    Arc::new(|| date(2025, 6, 15).at(12, 0, 0, 0))
}

/// What `source` renders from one user message with this content.
fn say(source: &str, content: Value) -> Result<String, TemplateError> {
    let messages = [json!({"role": "user", "content": content})];
    template(source).render(&RenderInput::new(&messages))
}

const CONCAT: &str = "{% for m in messages %}{{ m['content'] }}{% endfor %}";

#[test]
fn every_feature_of_transformers_templates_renders_as_there() {
    let features = fixtures::json("template_features.json");
    let context = features["context"].as_object().unwrap();
    let list = |name: &str| context[name].as_array().unwrap().as_slice();
    let tokens = ["bos_token", "eos_token"].map(|n| (n, context[n].as_str().unwrap()));
    let tokens = SpecialTokens::from_pairs(tokens);
    let input = RenderInput {
        tools: list("tools"),
        ..RenderInput::new(list("messages"))
    };
    for case in features["cases"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let rendered = ChatTemplate::from_source(source, "the test", &tokens)
            .and_then(|t| t.with_clock(clock()).render(&input));
        match case["expected"].as_str() {
            Some(expected) => assert_eq!(rendered.as_deref(), Ok(expected), "{}", case["name"]),
            None => assert!(rendered.is_err(), "{} gave {rendered:?}", case["name"]),
        }
    }
}

#[test]
fn chats_of_the_reference_tokenizers_render_as_in_transformers() {
    for (name, folder) in fixtures::tokenizer_folders() {
        let goldens = fixtures::goldens(&name);
        let Some(chats) = goldens["chats"].as_array() else {
            continue;
        };
        let tokens = SpecialTokens::load(&folder).unwrap();
        let template = ChatTemplate::load(&folder, &tokens)
            .unwrap()
            .with_clock(clock());
        for chat in chats {
            check_chat(&template, &goldens["conversations"], chat, &name);
        }
    }
}

fn check_chat(template: &ChatTemplate, conversations: &Value, chat: &Value, name: &str) {
    let conversation = &conversations[chat["conversation"].as_str().unwrap()];
    let known = ["conversation", "add_generation_prompt", "rendered", "ids"];
    let mut variables = chat.as_object().unwrap().clone();
    variables.retain(|key, _| !known.contains(&key.as_str()));
    let input = RenderInput {
        tools: conversation["tools"].as_array().map_or(&[], |t| t),
        add_generation_prompt: chat["add_generation_prompt"].as_bool().unwrap(),
        variables: Some(&variables),
        ..RenderInput::new(conversation["messages"].as_array().unwrap())
    };
    let rendered = template.render(&input);
    match chat["rendered"].as_str() {
        Some(expected) => assert_eq!(rendered.as_deref(), Ok(expected), "{name}: {chat}"),
        None => assert!(
            matches!(rendered, Err(TemplateError::Refused(_))),
            "{name}: {chat} gave {rendered:?}"
        ),
    }
}

#[test]
fn a_jinja_file_wins_over_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let load = || ChatTemplate::load(folder.path(), &SpecialTokens::default()).unwrap();
    let messages = [json!({"role": "user", "content": "C"})];
    let input = RenderInput::new(&messages);
    assert!(!load().exists());
    assert_eq!(load().render(&input), Err(TemplateError::Missing));

    let file = |name: &str| folder.path().join(name);
    let config = |template: Value| json!({"chat_template": template}).to_string();
    fs::write(file("chat_template.json"), config(json!("processor"))).unwrap();
    assert_eq!(load().render(&input).as_deref(), Ok("processor"));
    fs::write(file("tokenizer_config.json"), config(json!(CONCAT))).unwrap();
    assert_eq!(load().render(&input).as_deref(), Ok("C"));
    fs::write(file("chat_template.jinja"), format!("zz{CONCAT}")).unwrap();
    assert_eq!(load().render(&input).as_deref(), Ok("zzC"));
}

#[test]
fn the_template_for_tools_is_used_when_there_are_tools() {
    let named = [("default", CONCAT), ("tool_use", "tools")];
    let template = ChatTemplate::named(named, "the test", &SpecialTokens::default()).unwrap();
    let messages = [json!({"role": "user", "content": "C"})];
    let tools = [json!({"type": "function"})];
    let input = RenderInput::new(&messages);
    assert_eq!(template.render(&input).as_deref(), Ok("C"));
    let input = RenderInput {
        tools: &tools,
        ..input
    };
    assert_eq!(template.render(&input).as_deref(), Ok("tools"));
}

#[test]
fn a_template_that_does_not_compile_names_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat_template.jinja");
    fs::write(&file, "fine\n{% if %}").unwrap();
    let error = ChatTemplate::load(folder.path(), &SpecialTokens::default()).err();
    let text = error.unwrap().to_string();
    assert!(text.contains("chat_template.jinja, line 2"), "{text}");
    assert!(compiled("{{ 'a %s' % x }}").is_err());
}

#[test]
fn arguments_reach_the_template_as_it_can_use_them() {
    let call = json!({"function": {"name": "f", "arguments": "{\"town\": \"Oslo\", \"n\": 2}"}});
    let messages = [json!({"role": "assistant", "content": null, "tool_calls": [call]})];
    let render = |source: &str| {
        let source =
            format!("{{% set a = messages[0].tool_calls[0].function.arguments %}}{source}");
        template(&source)
            .render(&RenderInput::new(&messages))
            .unwrap()
    };
    let mapping = "{% for k, v in a|items %}{{ k }}={{ v }};{% endfor %}{{ a|tojson }}";
    assert_eq!(
        render(mapping),
        "town=Oslo;n=2;{\"town\": \"Oslo\", \"n\": 2}"
    );
    assert_eq!(
        render("{{ 'call: ' + a }}"),
        "call: {\"town\": \"Oslo\", \"n\": 2}"
    );
}

#[test]
fn a_template_that_reads_parts_gets_parts() {
    let source = "{% for p in messages[0].content %}{{ p.text }}{% endfor %}";
    assert_eq!(say(source, json!("hi")).as_deref(), Ok("hi"));
    let parts = json!([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]);
    assert_eq!(say(CONCAT, parts).as_deref(), Ok("h\ni"));
}

#[test]
fn variables_do_not_replace_the_messages() {
    let variables = json!({"messages": "x", "enable_thinking": false});
    let messages = [json!({"role": "user", "content": "C"})];
    let input = RenderInput {
        variables: variables.as_object(),
        ..RenderInput::new(&messages)
    };
    let source = format!("{CONCAT}{{{{ enable_thinking }}}}{{{{ tools is none }}}}");
    assert_eq!(
        template(&source).render(&input).as_deref(),
        Ok("CFalseTrue")
    );
}

#[test]
fn pythons_string_methods_work() {
    for (expression, expected) in [
        ("'a.b.c'.rsplit('.', 1)", "['a.b', 'c']"),
        ("' a  b c '.rsplit(none, 1)", "[' a  b', 'c']"),
        ("'a=b=c'.partition('=')", "('a', '=', 'b=c')"),
        ("'a=b=c'.rpartition('=')", "('a=b', '=', 'c')"),
        ("'ab'.removeprefix('a') ~ 'ab'.removesuffix('b')", "ba"),
        ("'7'.zfill(3) ~ '-7'.zfill(3)", "007-07"),
        (
            "'a'.ljust(3, '.') ~ 'a'.rjust(3) ~ 'ab'.center(5, '*')",
            "a..  a**ab*",
        ),
        ("'aéx'.index('x')", "2"),
        ("{'a': [1e-7, 2e16]}", "{'a': [1e-07, 2e+16]}"),
        ("1e-7", "1e-07"),
    ] {
        let source = format!("{{{{ {expression} }}}}");
        assert_eq!(say(&source, json!("")).as_deref(), Ok(expected), "{source}");
    }
    assert!(say("{{ [1].append(2) }}", json!("")).is_err());
}

#[test]
fn a_hostile_template_is_stopped() {
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    let deep = "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let started = Instant::now();
    for source in [
        "{% for i in range(10000) %}{% for j in range(10000) %}{% for k in range(10000) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'x' * 100000000000 }}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
        "{{ 'x'.ljust(100000000000) }}",
        "{% include '/etc/passwd' %}",
        &format!("{nested}{{{{ ns.x }}}}"),
        &format!("{nested}{{{{ ns.x|tojson }}}}"),
        &format!("{deep}{{{{ ns.x }}}}"),
        &format!("{deep}{{{{ ns.x|tojson(indent=2) }}}}"),
        "{% for i in range(2) %}{% with %}{% continue %}{% endwith %}{% endfor %}",
    ] {
        let result = compiled(source).and_then(|t| {
            let messages = [json!({"role": "user", "content": ""})];
            t.render(&RenderInput::new(&messages))
        });
        assert!(
            result.is_err(),
            "{source} gave {} bytes",
            result.unwrap().len()
        );
    }
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_panic_of_the_engine_over_a_template_is_an_error_in_it() {
    let refused = compiled("{% import 'a' as 'b' %}").err();
    assert!(matches!(
        refused,
        Some(TemplateError::Syntax { line: 1, .. })
    ));
}
