//! JSON schemas before they are compiled: they must be JSON, and some value that ends must satisfy them. The compiler would follow a schema
//! that demands itself for ever. Everything else about schemas is the compiler's business.

use super::{GrammarError, Whitespace};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Most different references in one schema.
const REFERENCES_MAX: usize = 512;
/// See [`Whitespace::Short`].
const SHORT_WHITESPACE: &str = r"( |\n {0,4})";
/// Where the compiler looks for its options.
const OPTIONS: &str = "x-guidance";

/// The schema with the compiler's options in it.
pub(super) fn prepared(schema: &str, whitespace: &Whitespace) -> Result<Value, GrammarError> {
    let value: Value = serde_json::from_str(schema)
        .map_err(|error| invalid(format!("the schema is not valid JSON: {error}")))?;
    let mut object = match value {
        Value::Object(object) => object,
        Value::Bool(true) => Map::new(),
        Value::Bool(false) => return Err(invalid("no value satisfies the schema `false`")),
        other => return Err(invalid(format!("a schema is an object, got {other}"))),
    };
    object.insert(OPTIONS.to_owned(), options(whitespace));
    let root = Value::Object(object);
    check_ends(&root)?;
    Ok(root)
}

fn options(whitespace: &Whitespace) -> Value {
    match whitespace {
        Whitespace::Short => json!({"whitespace_pattern": SHORT_WHITESPACE}),
        Whitespace::None => json!({"whitespace_flexible": false}),
        Whitespace::Pattern(pattern) => json!({"whitespace_pattern": pattern}),
    }
}

fn invalid(message: impl Into<String>) -> GrammarError {
    GrammarError::Invalid(message.into())
}

/// Checks that some finite value could satisfy the schema: the least set of references with finite values, found by going round until it
/// grows no more.
fn check_ends(root: &Value) -> Result<(), GrammarError> {
    let mut open = BTreeSet::new();
    collect_references(root, &mut open);
    if open.len() > REFERENCES_MAX {
        return Err(GrammarError::TooLarge {
            what: "the number of different references",
            given: open.len(),
            limit: REFERENCES_MAX,
        });
    }
    loop {
        let ends_now = |reference: &&str| target(root, reference).is_none_or(|s| ends(s, &open));
        let found: Vec<&str> = open.iter().copied().filter(ends_now).collect();
        if found.is_empty() {
            break;
        }
        for reference in found {
            open.remove(reference);
        }
    }
    match ends(root, &open) {
        true => Ok(()),
        false => Err(invalid(
            "no value that ends satisfies the schema: it demands itself",
        )),
    }
}

fn collect_references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str));
            object.values().for_each(|v| collect_references(v, found));
        }
        Value::Array(values) => values.iter().for_each(|v| collect_references(v, found)),
        _ => {}
    }
}

/// What a reference within the schema points to; of others the compiler tells.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?.trim_end_matches('/'))
}

/// Whether a finite value can satisfy `schema`, given that none (known so far) satisfies the `open` references.
fn ends(schema: &Value, open: &BTreeSet<&str>) -> bool {
    let Some(object) = schema.as_object() else {
        return true;
    };
    let list = |key: &str| object.get(key).and_then(Value::as_array);
    let reference = object.get("$ref").and_then(Value::as_str);
    let one_of = |key: &str| list(key).is_none_or(|all| all.iter().any(|s| ends(s, open)));
    reference.is_none_or(|reference| !open.contains(reference))
        && list("allOf").is_none_or(|all| all.iter().all(|s| ends(s, open)))
        && one_of("anyOf")
        && one_of("oneOf")
        && (!must_be(object, "object") || required(object).all(|s| ends(s, open)))
        && (!must_be(object, "array") || first_items(object).all(|s| ends(s, open)))
}

/// Whether every value of the schema is of that type, and none is given literally.
fn must_be(object: &Map<String, Value>, kind: &str) -> bool {
    let literal = object.contains_key("enum") || object.contains_key("const");
    !literal
        && object
            .get("type")
            .is_some_and(|t| t == kind || *t == json!([kind]))
}

/// Schemas of the properties that must be there.
fn required(object: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let names = object.get("required").and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    names.filter_map(|name| object.get("properties")?.get(name))
}

/// Schemas of the items that must be there.
fn first_items(object: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let least = object.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let least = usize::try_from(least).unwrap_or(usize::MAX);
    let first = object.get("prefixItems").and_then(Value::as_array);
    let first = first.map_or(&[][..], Vec::as_slice);
    let rest = object.get("items").filter(|_| least > first.len());
    first.iter().take(least).chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, ends: bool) {
        let result = prepared(&schema.to_string(), &Whitespace::Short);
        assert_eq!(result.is_ok(), ends, "{schema}: {result:?}");
    }

    #[test]
    fn a_schema_that_demands_itself_is_refused() {
        let node = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        check(node.clone(), true);
        let mut endless = node;
        endless["required"] = json!(["next"]);
        check(endless.clone(), false);
        endless["properties"]["next"] = json!({"anyOf": [{"type": "null"}, {"$ref": "#"}]});
        check(endless, true);
        check(json!({"type": "array", "items": {"$ref": "#"}}), true);
        check(
            json!({"type": "array", "minItems": 1, "items": {"$ref": "#"}}),
            false,
        );
        check(
            json!({"type": ["array", "null"], "minItems": 1, "items": {"$ref": "#"}}),
            true,
        );
        check(
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
            false,
        );
        let defs = json!({"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}});
        check(json!({"$ref": "#/$defs/a", "$defs": defs}), false);
        let defs =
            json!({"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/c"}]}, "c": {}});
        check(json!({"$ref": "#/$defs/a", "$defs": defs}), true);
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for text in ["", "{", "7", "[]", "false", "\"x\"", &"[".repeat(10_000)] {
            assert!(prepared(text, &Whitespace::None).is_err(), "{text}");
        }
        assert!(prepared("true", &Whitespace::None).is_ok());
    }

    #[test]
    fn references_are_bounded() {
        let defs: Map<String, Value> = (0..=REFERENCES_MAX)
            .map(|i| {
                (
                    format!("d{i}"),
                    json!({"$ref": format!("#/$defs/d{}", i + 1)}),
                )
            })
            .collect();
        let result = prepared(&json!({"$defs": defs}).to_string(), &Whitespace::None);
        assert!(
            matches!(result, Err(GrammarError::TooLarge { .. })),
            "{result:?}"
        );
    }
}
