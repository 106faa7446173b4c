//! Messages as chat templates expect them: content as text, arguments of tool calls as mappings.
//! What is no text is refused here, so that no template prints a list's source form into a prompt.

use serde_json::{Map, Value, json};

use super::super::TemplateError;

/// How a template reads the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentForm {
    /// As one text. Several text parts are joined with a newline.
    Text,
    /// As a list of parts.
    Parts,
}

/// Messages ready to be rendered.
#[derive(Debug)]
pub(super) struct Prepared {
    pub messages: Vec<Value>,
    /// The same with the arguments of tool calls as the text the client sent; `None` where there was no such text.
    pub with_argument_text: Option<Vec<Value>>,
}

/// Checks the messages and brings them into the form that templates expect.
pub(super) fn prepare(messages: &[Value], form: ContentForm) -> Result<Prepared, TemplateError> {
    if messages.is_empty() {
        return Err(wrong("messages must hold at least one message"));
    }
    let mut texts = Vec::with_capacity(messages.len());
    for (i, message) in messages.iter().enumerate() {
        texts.push(with_content(message, i, form)?);
    }
    let mut mapped = texts.clone();
    for (i, message) in mapped.iter_mut().enumerate() {
        map_arguments(message, i)?;
    }
    let with_argument_text = (mapped != texts).then_some(texts);
    Ok(Prepared {
        messages: mapped,
        with_argument_text,
    })
}

/// The message with its content in the form asked for.
fn with_content(message: &Value, i: usize, form: ContentForm) -> Result<Value, TemplateError> {
    let Some(fields) = message.as_object() else {
        return Err(wrong(format!("messages[{i}] must be an object")));
    };
    if !fields.get("role").is_some_and(Value::is_string) {
        return Err(wrong(format!("messages[{i}].role must be a string")));
    }
    let mut fields = fields.clone();
    if let Some(content) = fields.get_mut("content")
        && !content.is_null()
    {
        let text = text_of(content, i)?;
        *content = match form {
            ContentForm::Text => Value::String(text),
            ContentForm::Parts => json!([{"type": "text", "text": text}]),
        };
    }
    Ok(Value::Object(fields))
}

/// Content as one text: a string, or text parts joined with a newline.
fn text_of(content: &Value, i: usize) -> Result<String, TemplateError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let texts: Result<Vec<&str>, _> = parts.iter().map(|p| text_of_part(p, i)).collect();
            Ok(texts?.join("\n"))
        }
        _ => Err(wrong(format!(
            "messages[{i}].content must be a string or a list of parts"
        ))),
    }
}

fn text_of_part(part: &Value, i: usize) -> Result<&str, TemplateError> {
    let kind = part.get("type").and_then(Value::as_str);
    let key = match kind {
        Some("text" | "input_text" | "output_text") => "text",
        Some("refusal") => "refusal",
        Some(kind) => {
            return Err(wrong(format!(
                "messages[{i}].content holds a part of type {kind:?}; this model reads text only"
            )));
        }
        None => {
            return Err(wrong(format!(
                "messages[{i}].content holds a part without a type"
            )));
        }
    };
    part.get(key).and_then(Value::as_str).ok_or_else(|| {
        wrong(format!(
            "messages[{i}].content holds a part without {key:?}"
        ))
    })
}

/// Turns the arguments of tool calls from JSON text into mappings; no arguments are an empty one.
fn map_arguments(message: &mut Value, i: usize) -> Result<(), TemplateError> {
    let calls = match message.get_mut("tool_calls") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(calls)) => calls,
        Some(_) => return Err(wrong(format!("messages[{i}].tool_calls must be a list"))),
    };
    for (k, call) in calls.iter_mut().enumerate() {
        let Some(arguments) = call
            .get_mut("function")
            .and_then(|function| function.get_mut("arguments"))
        else {
            continue;
        };
        let mapping = match &*arguments {
            Value::Null => Some(Map::new()),
            Value::Object(_) => continue,
            Value::String(text) if text.trim().is_empty() => Some(Map::new()),
            Value::String(text) => parse_mapping(text),
            _ => None,
        };
        *arguments = Value::Object(mapping.ok_or_else(|| {
            wrong(format!(
                "messages[{i}].tool_calls[{k}].function.arguments must be a JSON object, as text or as it is"
            ))
        })?);
    }
    Ok(())
}

/// The object in a JSON text; `null` is an empty one.
fn parse_mapping(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text).ok()? {
        Value::Object(mapping) => Some(mapping),
        Value::Null => Some(Map::new()),
        _ => None,
    }
}

fn wrong(detail: impl Into<String>) -> TemplateError {
    TemplateError::Messages(detail.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(content: Value, form: ContentForm) -> Result<Value, TemplateError> {
        let message = [json!({"role": "user", "content": content})];
        prepare(&message, form).map(|p| p.messages[0]["content"].clone())
    }

    fn arguments(arguments: Value) -> Result<Value, TemplateError> {
        let call = json!({"type": "function", "function": {"name": "f", "arguments": arguments}});
        let message = [json!({"role": "assistant", "content": null, "tool_calls": [call]})];
        prepare(&message, ContentForm::Text)
            .map(|p| p.messages[0]["tool_calls"][0]["function"]["arguments"].clone())
    }

    #[test]
    fn text_parts_become_one_text() {
        let text = |c| content(c, ContentForm::Text);
        assert_eq!(text(json!("a")), Ok(json!("a")));
        assert_eq!(text(json!([])), Ok(json!("")));
        assert_eq!(text(json!(null)), Ok(json!(null)));
        let two = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(text(two), Ok(json!("a\nb")));
    }

    #[test]
    fn a_template_of_parts_gets_parts() {
        let expected = json!([{"type": "text", "text": "a"}]);
        assert_eq!(content(json!("a"), ContentForm::Parts), Ok(expected));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for wrong in [
            json!(7),
            json!({"a": 1}),
            json!([{"type": "text"}]),
            json!([{"text": "a"}]),
            json!(["a"]),
            json!([{"type": "image_url", "image_url": {"url": "data:,"}}]),
        ] {
            let result = content(wrong.clone(), ContentForm::Text);
            assert!(matches!(result, Err(TemplateError::Messages(_))), "{wrong}");
        }
        assert!(prepare(&[], ContentForm::Text).is_err());
        assert!(prepare(&[json!("hi")], ContentForm::Text).is_err());
        assert!(prepare(&[json!({"content": "hi"})], ContentForm::Text).is_err());
    }

    #[test]
    fn arguments_become_mappings() {
        assert_eq!(arguments(json!(r#"{"a": 1}"#)), Ok(json!({"a": 1})));
        assert_eq!(arguments(json!({"a": 1})), Ok(json!({"a": 1})));
        for empty in [json!(""), json!(null), json!("null"), json!(" ")] {
            assert_eq!(arguments(empty), Ok(json!({})));
        }
        for wrong in [json!("{bad"), json!("[1]"), json!(3)] {
            assert!(arguments(wrong).is_err());
        }
    }

    #[test]
    fn the_clients_own_arguments_are_kept_beside_the_mapping() {
        let call = |a: &str| json!({"function": {"name": "f", "arguments": a}});
        let message = |a| [json!({"role": "assistant", "tool_calls": [call(a)]})];
        let prepared = prepare(&message(r#"{"a":1}"#), ContentForm::Text).unwrap();
        let texts = prepared.with_argument_text.unwrap();
        assert_eq!(
            texts[0]["tool_calls"][0]["function"]["arguments"],
            r#"{"a":1}"#
        );
        let plain = [json!({"role": "user", "content": "a"})];
        let prepared = prepare(&plain, ContentForm::Text).unwrap();
        assert!(prepared.with_argument_text.is_none());
    }
}
