//! `tools`, `tool_choice` and `parallel_tool_calls`: what a request offers, and what it forces. A forced call is written as JSON under a
//! grammar, whatever the model would write by itself: the arguments alone for a named function, else a list of calls.
//! Not here: reading calls out of answers (`http/chat_parts`).

use crate::http::chat_parts::{CallFormat, Calls};
use crate::http::grammar::Asked;
use crate::http::refusal::Refusal;
use ropeteam_models::grammar::{GrammarSpec, Whitespace};
use serde_json::{Value, json};

/// What a request says about tools.
#[derive(Debug)]
pub struct ToolFields<'a> {
    pub tools: Option<&'a [Value]>,
    pub tool_choice: Option<&'a Value>,
    pub parallel_tool_calls: Option<bool>,
}

/// What its answer may or must call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolUse {
    /// Nothing: calls are not looked for.
    None,
    /// What the model likes.
    Auto,
    /// At least one tool; so says a grammar.
    Required(Asked),
    /// That function; so says a grammar.
    Named(String, Asked),
}

impl ToolUse {
    /// The grammar that forces it.
    pub fn grammar(&self) -> Option<&Asked> {
        match self {
            ToolUse::None | ToolUse::Auto => None,
            ToolUse::Required(asked) | ToolUse::Named(_, asked) => Some(asked),
        }
    }

    /// The calls that the answer may hold, by a model that writes them in the `usual` way (`None`: those are not looked for).
    pub fn calls(&self, fields: &ToolFields<'_>, usual: Option<CallFormat>) -> Option<Calls> {
        let tools = fields.tools.unwrap_or(&[]);
        let all = || tools.iter().filter_map(name).map(str::to_owned).collect();
        let (format, names) = match self {
            ToolUse::None => return None,
            ToolUse::Auto => (usual?, all()),
            ToolUse::Required(_) => (CallFormat::Json, all()),
            ToolUse::Named(name, _) => (CallFormat::Arguments, [name.clone()].into()),
        };
        Some(Calls {
            format,
            names,
            texts: tools.iter().flat_map(texts).collect(),
            one_only: fields.one_only(),
        })
    }
}

impl ToolFields<'_> {
    /// Checks the fields. Without a choice, tools may be called as the model likes.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn checked(&self) -> Result<ToolUse, Refusal> {
        self.check_tools()?;
        let tools = self.tools.unwrap_or(&[]);
        let Some(choice) = self.tool_choice else {
            return Ok(if tools.is_empty() {
                ToolUse::None
            } else {
                ToolUse::Auto
            });
        };
        let wrong = |message: String| Err(Refusal::invalid("tool_choice", message));
        if choice == "none" {
            return Ok(ToolUse::None);
        }
        if tools.is_empty() {
            return wrong(format!("tool_choice = {choice} needs tools"));
        }
        if choice == "auto" {
            return Ok(ToolUse::Auto);
        }
        if choice == "required" {
            return Ok(ToolUse::Required(self.any_call(tools)));
        }
        match (choice["type"].as_str(), choice["function"]["name"].as_str()) {
            (Some("function"), Some(wanted)) => {
                match tools.iter().find(|tool| name(tool) == Some(wanted)) {
                    Some(tool) => Ok(ToolUse::Named(wanted.to_owned(), asked(parameters(tool)))),
                    None => wrong(format!(
                        "tool_choice names {wanted:?}, which tools does not hold"
                    )),
                }
            }
            (Some("allowed_tools"), _) => Err(Refusal::not_offered("tool_choice.allowed_tools")),
            _ => wrong(format!(
                "tool_choice must be \"none\", \"auto\", \"required\" or {{\"type\": \"function\", \"function\": {{\"name\": …}}}}, got {choice}"
            )),
        }
    }

    fn one_only(&self) -> bool {
        self.parallel_tool_calls == Some(false)
    }

    fn check_tools(&self) -> Result<(), Refusal> {
        if self.tools.is_some_and(<[Value]>::is_empty) {
            return Err(Refusal::invalid(
                "tools",
                "tools must hold at least one tool when it is given",
            ));
        }
        for (index, tool) in self.tools.unwrap_or(&[]).iter().enumerate() {
            let parameters = &tool["function"]["parameters"];
            let field = format!("tools[{index}]");
            if name(tool).is_none() {
                let message = format!(
                    "{field} must be {{\"type\": \"function\", \"function\": {{\"name\": …}}}}"
                );
                return Err(Refusal::invalid(field, message));
            }
            if !parameters.is_null() && !parameters.is_object() {
                let message =
                    format!("{field}.function.parameters must be a JSON schema, got {parameters}");
                return Err(Refusal::invalid(
                    format!("{field}.function.parameters"),
                    message,
                ));
            }
        }
        Ok(())
    }

    /// The schema of a list of calls, of one call if there may be one only.
    fn any_call(&self, tools: &[Value]) -> Asked {
        let calls: Vec<Value> = tools
            .iter()
            .enumerate()
            .map(|(index, tool)| {
                let mut arguments = parameters(tool);
                let place = format!("#/items/anyOf/{index}/properties/arguments");
                move_references(&mut arguments, &place);
                json!({
                    "type": "object",
                    "properties": {"name": {"const": name(tool)}, "arguments": arguments},
                    "required": ["name", "arguments"],
                    "additionalProperties": false
                })
            })
            .collect();
        let mut list = json!({"type": "array", "minItems": 1, "items": {"anyOf": calls}});
        if self.one_only() {
            list["maxItems"] = json!(1);
        }
        asked(list)
    }
}

fn name(tool: &Value) -> Option<&str> {
    tool["function"]["name"]
        .as_str()
        .filter(|_| tool["type"] == "function")
}

/// The parameters of a tool that are strings, each behind the tool's name.
fn texts(tool: &Value) -> Vec<(String, String)> {
    let Some(name) = name(tool) else {
        return Vec::new();
    };
    let declared = tool["function"]["parameters"]["properties"].as_object();
    let texts = declared
        .into_iter()
        .flatten()
        .filter(|(_, schema)| schema["type"] == "string");
    texts
        .map(|(key, _)| (name.to_owned(), key.clone()))
        .collect()
}

/// The schema of a tool's arguments, an object in any case.
fn parameters(tool: &Value) -> Value {
    match &tool["function"]["parameters"] {
        Value::Object(schema) if !schema.is_empty() => Value::Object(schema.clone()),
        _ => json!({"type": "object"}),
    }
}

/// References within a schema go on pointing to what they pointed to when it stands at `place` of another one. Names of anchors are good
/// for a whole document and stay.
fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get_mut("$ref")
                && let Some(path) = reference.strip_prefix('#')
                && (path.is_empty() || path.starts_with('/'))
            {
                *reference = format!("{place}{path}");
            }
            object.values_mut().for_each(|v| move_references(v, place));
        }
        Value::Array(values) => values.iter_mut().for_each(|v| move_references(v, place)),
        _ => {}
    }
}

fn asked(schema: Value) -> Asked {
    Asked {
        field: "tools".to_owned(),
        spec: GrammarSpec::Json {
            schema: schema.to_string(),
            whitespace: Whitespace::default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<Value> {
        let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "leaf": {"$ref": "#/$defs/leaf"}},
            "$defs": {"leaf": {"type": "null"}}});
        vec![
            json!({"type": "function", "function": {"name": "now"}}),
            json!({"type": "function", "function": {"name": "walk", "parameters": tree}}),
        ]
    }

    fn checked(choice: Value, parallel: Option<bool>) -> Result<ToolUse, Refusal> {
        let tools = tools();
        let fields = ToolFields {
            tools: Some(&tools),
            tool_choice: (!choice.is_null()).then_some(&choice),
            parallel_tool_calls: parallel,
        };
        fields.checked()
    }

    fn schema(tools: &ToolUse) -> Value {
        let Some(GrammarSpec::Json { schema, .. }) = tools.grammar().map(|asked| &asked.spec)
        else {
            panic!("{tools:?} has no schema");
        };
        serde_json::from_str(schema).unwrap()
    }

    #[test]
    fn tools_may_be_called_unless_the_choice_says_otherwise() {
        assert_eq!(checked(Value::Null, None), Ok(ToolUse::Auto));
        assert_eq!(checked(json!("auto"), None), Ok(ToolUse::Auto));
        assert_eq!(checked(json!("none"), None), Ok(ToolUse::None));
    }

    #[test]
    fn a_forced_call_has_a_schema_whose_references_point_where_they_did() {
        let required = schema(&checked(json!("required"), Some(false)).unwrap());
        assert_eq!(required["maxItems"], 1);
        let walk = &required["items"]["anyOf"][1]["properties"]["arguments"];
        let pointed = |name: &str| {
            let reference = walk["properties"][name]["$ref"].as_str().unwrap();
            required.pointer(&reference[1..]).unwrap()
        };
        assert_eq!(pointed("next"), walk);
        assert_eq!(pointed("leaf"), &json!({"type": "null"}));
        let several = schema(&checked(json!("required"), None).unwrap());
        assert_eq!(several.get("maxItems"), None);
        let named = json!({"type": "function", "function": {"name": "now"}});
        assert_eq!(
            schema(&checked(named, None).unwrap()),
            json!({"type": "object"})
        );
    }

    #[test]
    fn references_to_anchors_and_other_documents_stay() {
        let schema = json!({"anyOf": [{"$ref": "#leaf"}, {"$ref": "https://example.com/a#/b"}]});
        let mut moved = schema.clone();
        move_references(&mut moved, "#/items");
        assert_eq!(moved, schema);
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        for (choice, words) in [
            (
                json!({"type": "function", "function": {"name": "gone"}}),
                "\"gone\"",
            ),
            (json!({"type": "allowed_tools"}), "not supported"),
            (json!("any"), "must be \"none\""),
            (json!(7), "got 7"),
        ] {
            let refusal = checked(choice, None).unwrap_err();
            assert!(refusal.message.contains(words), "{}", refusal.message);
        }
        for (tools, field) in [
            (json!([]), "tools"),
            (json!([{"type": "function"}]), "tools[0]"),
            (json!([{"function": {"name": "a"}}]), "tools[0]"),
            (
                json!([{"type": "function", "function": {"name": "a", "parameters": 7}}]),
                "tools[0].function.parameters",
            ),
        ] {
            let fields = ToolFields {
                tools: tools.as_array().map(Vec::as_slice),
                tool_choice: None,
                parallel_tool_calls: None,
            };
            let refusal = fields.checked().unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some(field));
        }
        let needs_tools = ToolFields {
            tools: None,
            tool_choice: Some(&json!("required")),
            parallel_tool_calls: None,
        };
        assert!(
            needs_tools
                .checked()
                .unwrap_err()
                .message
                .contains("needs tools")
        );
    }
}
