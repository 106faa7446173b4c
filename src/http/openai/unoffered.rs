//! Fields of OpenAI and vLLM that this server knows and does not offer: refused by name unless their value asks for nothing. And those
//! that change no answer: accepted. To offer a field, take its line out here and read it in the route.

use crate::http::json::asks_for_nothing;
use crate::http::refusal::Refusal;
use serde_json::Value;

/// Whether a value asks for nothing.
type Neutral = fn(&Value) -> bool;

/// Known and not offered, with the values that are harmless all the same (`null` always is).
const NOT_OFFERED: &[(&str, Neutral)] = &[
    ("tools", |_| false),
    ("tool_choice", |v| v == "none"),
    ("functions", |_| false),
    ("function_call", |v| v == "none"),
    ("structural_tag", |_| false),
    ("grammar", |_| false),
    ("json_schema", |_| false),
    ("suffix", |v| v == ""),
    ("echo", |v| v == false),
    ("best_of", |v| v == 1),
    ("modalities", |v| v == &serde_json::json!(["text"])),
    ("audio", |_| false),
    ("prediction", |_| false),
    ("web_search_options", |_| false),
    ("reasoning_effort", |v| v == "none"),
    ("include_reasoning", |v| v == true),
    ("thinking_token_budget", |_| false),
    ("use_beam_search", |v| v == false),
    ("length_penalty", |v| v == 1.0),
    ("early_stopping", |v| v == false),
    ("watermarking", |v| v == false),
    ("return_prompt_text", |v| v == false),
    ("return_token_offsets", |v| v == false),
    ("return_weight_versions", |v| v == false),
    ("routed_experts_prompt_start", |v| v == 0),
    ("spaces_between_special_tokens", |v| v == true),
    ("documents", is_empty_list),
    ("chat_template", |_| false),
    ("mm_processor_kwargs", |_| false),
    ("media_io_kwargs", |_| false),
    ("mm_payload", |v| v == "tensors"),
    ("return_mm_kwargs", |_| false),
    ("logits_processors", is_empty_list),
    ("kv_transfer_params", is_empty_object),
    ("ec_transfer_params", is_empty_object),
    ("vllm_xargs", is_empty_object),
    ("stream_interval", |v| v == 1),
    ("repetition_detection", |_| false),
    ("prompt_embeds", |_| false),
    ("adapter_id", |_| false),
    ("embed_dtype", |v| v == "float32"),
    ("endianness", |v| v == "native" || v == "little"),
    ("mirostat", |v| v == 0),
    ("dry_multiplier", |v| v == 0.0),
    ("xtc_probability", |v| v == 0.0),
    ("verbosity", |v| v == "medium"),
    ("top_a", |v| v == 0.0),
    ("tfs", |v| v == 1.0),
];

/// Change no answer, or are the client's own business; with what they must be.
const HARMLESS: &[(&str, Neutral, &str)] = &[
    ("user", Value::is_string, "a string"),
    ("safety_identifier", Value::is_string, "a string"),
    ("prompt_cache_key", Value::is_string, "a string"),
    ("prompt_cache_retention", Value::is_string, "a string"),
    ("metadata", Value::is_object, "an object"),
    ("store", Value::is_boolean, "true or false"),
    ("service_tier", Value::is_string, "a string"),
    ("session_id", Value::is_string, "a string"),
    (
        "stream_options.include_obfuscation",
        Value::is_boolean,
        "true or false",
    ),
];

/// Fields of a message that chat templates are written for.
const MESSAGE_FIELDS: &[&str] = &[
    "role",
    "content",
    "name",
    "refusal",
    "tool_calls",
    "tool_call_id",
    "reasoning",
    "reasoning_content",
];

/// Paths of the messages' fields that no template is known to read, such as `messages.0.frob`.
pub fn in_messages(messages: &[Value]) -> Vec<String> {
    let objects = messages.iter().enumerate();
    let objects = objects.filter_map(|(index, message)| Some((index, message.as_object()?)));
    objects
        .flat_map(|(index, fields)| {
            let unknown = fields
                .keys()
                .filter(|name| !MESSAGE_FIELDS.contains(&name.as_str()));
            unknown.map(move |name| format!("messages.{index}.{name}"))
        })
        .collect()
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Goes through the fields that no type knew. Returns those that nobody knows.
///
/// # Errors
/// The first field that asks for something not offered, or is of the wrong type.
pub fn check(body: &[u8], ignored: Vec<String>) -> Result<Vec<String>, Refusal> {
    let mut unknown = Vec::new();
    for path in ignored {
        if let Some((_, fits, what)) = HARMLESS.iter().find(|(name, ..)| *name == path) {
            if !asks_for_nothing(body, &path, fits) {
                return Err(Refusal::invalid(
                    path.as_str(),
                    format!("{path} must be {what}"),
                ));
            }
            continue;
        }
        let Some((_, neutral)) = NOT_OFFERED.iter().find(|(name, _)| *name == path) else {
            unknown.push(path);
            continue;
        };
        if !asks_for_nothing(body, &path, neutral) {
            return Err(Refusal::not_offered(&path));
        }
    }
    Ok(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(body: &str, field: &str, refused: bool) {
        let result = check(body.as_bytes(), vec![field.to_owned()]);
        match result {
            Err(refusal) => {
                assert!(refused, "{body}");
                assert_eq!(refusal.field.as_deref(), Some(field));
            }
            Ok(unknown) => assert!(!refused && unknown.is_empty(), "{body}"),
        }
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name_never_ignored() {
        check_one(r#"{"tools":[{"type":"function"}]}"#, "tools", true);
        check_one(r#"{"tools":[]}"#, "tools", true);
        check_one(r#"{"tools":null}"#, "tools", false);
        check_one(r#"{"tool_choice":"none"}"#, "tool_choice", false);
        check_one(r#"{"tool_choice":"auto"}"#, "tool_choice", true);
        check_one(r#"{"structural_tag":{}}"#, "structural_tag", true);
        check_one(r#"{"length_penalty":1}"#, "length_penalty", false);
        check_one(r#"{"suffix":"x"}"#, "suffix", true);
        check_one(r#"{"user":"u"}"#, "user", false);
        check_one(r#"{"user":5}"#, "user", true);
        check_one(r#"{"metadata":{"a":"b"}}"#, "metadata", false);
        check_one(r#"{"metadata":"a"}"#, "metadata", true);
        check_one(r#"{"json_schema":1e400}"#, "json_schema", true);
        check_one(r#"{"suffix":"\ud83d"}"#, "suffix", true);
    }

    #[test]
    fn unknown_fields_are_named() {
        assert_eq!(
            check(b"{\"frob\":1}", vec!["frob".into()]).unwrap(),
            ["frob"]
        );
    }
}
