//! How tenants share the devices, as the file of `tenants_file` or a change while the server runs says it:
//! `{"classes": {"gold": {"weight": 4, "max_running": 8}}, "tenants": {"alice": "gold"}, "others": "gold"}`.

use ropeteam_engine::fairness::{Class, Fairness};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const WEIGHT_MAX: u32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    classes: BTreeMap<String, Entry>,
    #[serde(default)]
    tenants: BTreeMap<String, String>,
    others: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default = "one")]
    weight: u32,
    max_running: Option<usize>,
}

fn one() -> u32 {
    1
}

/// Reads the table in a file.
///
/// # Errors
/// What is wrong, with the path of the value.
pub fn read(file: &Path) -> Result<Fairness, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("cannot be read: {error}"))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    table(&value)
}

/// Reads the table from JSON.
///
/// # Errors
/// What is wrong, with the path of the value.
pub fn table(value: &Value) -> Result<Fairness, String> {
    let table: Table = serde_path_to_error::deserialize(value)
        .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
    for (name, entry) in &table.classes {
        if !(1..=WEIGHT_MAX).contains(&entry.weight) {
            let weight = entry.weight;
            return Err(format!(
                "classes.{name}.weight: {weight} is not a whole number from 1 to {WEIGHT_MAX}"
            ));
        }
        if entry.max_running == Some(0) {
            return Err(format!(
                "classes.{name}.max_running: 0 is not a whole number from 1 on"
            ));
        }
    }
    let class = |path: &str, name: &str| {
        let known = || table.classes.keys().cloned().collect::<Vec<_>>().join(", ");
        match table.classes.get(name) {
            Some(entry) => Ok(Class {
                weight: entry.weight,
                max_running: entry.max_running,
            }),
            None => Err(format!(
                "{path}: `{name}` is no class, expected one of {}",
                known()
            )),
        }
    };
    let mut fairness = Fairness::default();
    for (tenant, name) in &table.tenants {
        let class = class(&format!("tenants.{tenant}"), name)?;
        fairness.tenants.insert(tenant.clone(), class);
    }
    if let Some(name) = &table.others {
        fairness.others = class("others", name)?;
    }
    Ok(fairness)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tenant_has_the_weight_and_the_bound_of_its_class() {
        let fairness = table(&json!({
            "classes": {"gold": {"weight": 4}, "free": {"max_running": 2}},
            "tenants": {"alice": "gold"}, "others": "free"
        }));
        let fairness = fairness.unwrap();
        assert_eq!(fairness.class_of("alice").weight, 4);
        assert_eq!(fairness.class_of("alice").max_running, None);
        assert_eq!(fairness.class_of("bob").weight, 1);
        assert_eq!(fairness.class_of("bob").max_running, Some(2));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_path() {
        let check = |value: Value, expected: &str| {
            let error = table(&value).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        };
        check(
            json!({"classes": {"a": {"weight": 0}}}),
            "classes.a.weight: 0 is not",
        );
        check(
            json!({"classes": {"a": {"weight": "x"}}}),
            "classes.a.weight: invalid type",
        );
        check(
            json!({"classes": {"a": {"max_running": 0}}}),
            "classes.a.max_running: 0",
        );
        check(
            json!({"classes": {"a": {"wait": 1}}}),
            "classes.a.wait: unknown field",
        );
        check(
            json!({"classes": {"a": {}}, "tenants": {"x": "b"}}),
            "tenants.x: `b` is no class",
        );
        check(
            json!({"classes": {}, "others": "b"}),
            "others: `b` is no class",
        );
    }
}
