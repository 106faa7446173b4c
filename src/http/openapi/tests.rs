//! The documents against the routes as they are registered, and against the fields that the request types know.

use super::{MANAGEMENT, Port, SERVING, document};
use crate::http::tests::{call_port, serving_state};
use crate::http::{management_routes, openai, serving_routes, tgi};
use actix_web::http::Method;
use actix_web::test::TestRequest;
use actix_web::web::ServiceConfig;
use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

type Routes = fn(&mut ServiceConfig);

/// The ports and their route tables.
const PORTS: [(Port, Routes); 2] = [
    (Port::Serving, serving_routes),
    (Port::Management, management_routes),
];

fn parsed(port: Port) -> Value {
    serde_json::from_str(port.document()).expect("JSON")
}

/// Every `(path, method)` that the document describes, the method in capitals.
fn described(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    let each = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().expect("methods").clone();
        let path = path.clone();
        methods
            .into_iter()
            .map(move |(method, _)| (path.clone(), method.to_uppercase()))
            .collect::<Vec<_>>()
    };
    paths.flat_map(each).collect()
}

thread_local! {
    static ROUTES: RefCell<Vec<(String, &'static str)>> = const { RefCell::new(Vec::new()) };
}

/// Hears of a route when it is registered.
pub fn note_route(path: &str, allowed: &'static str) {
    ROUTES.with_borrow_mut(|routes| routes.push((path.to_owned(), allowed)));
}

/// Every `(path, method)` that is registered on a port.
async fn registered(routes: Routes) -> BTreeSet<(String, String)> {
    ROUTES.take();
    let state = serving_state(Duration::ZERO).await;
    call_port(&state, TestRequest::get().uri("/health"), routes).await;
    let each = |(path, allowed): (String, &str)| {
        // actix writes a pattern into a path, OpenAPI a name alone.
        let path = path.replace(":.+}", "}");
        let methods = allowed.split(", ").filter(|method| *method != "HEAD");
        methods
            .map(move |method| (path.clone(), method.to_owned()))
            .collect::<Vec<_>>()
    };
    ROUTES.take().into_iter().flat_map(each).collect()
}

#[actix_web::test]
async fn every_route_is_described_and_nothing_else() {
    for (port, routes) in PORTS {
        let registered = registered(routes).await;
        assert!(registered.len() > 10, "{registered:?}");
        assert_eq!(registered, described(&parsed(port)), "{port:?}");
    }
}

#[actix_web::test]
async fn every_described_route_answers() {
    let state = serving_state(Duration::ZERO).await;
    for (port, routes) in PORTS {
        for (path, method) in described(&parsed(port)) {
            // These end the server's work, and answer without end.
            if ["/stopService", "/v1/drain", "/v1/events"].contains(&path.as_str()) {
                continue;
            }
            let mut uri = path.replace("{id}", "0");
            for (name, value) in [
                ("{model}", "sim"),
                ("{version}", "1"),
                ("{seconds}", "1"),
                ("{role}", "x"),
            ] {
                uri = uri.replace(name, value);
            }
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let request = TestRequest::default().method(method).uri(&uri);
            let reply = call_port(&state, request, routes).await;
            let missing = reply.status == 405 || reply.text.contains("There is no route");
            assert!(!missing && reply.status != 500, "{path}: {}", reply.text);
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    for parts in [SERVING, MANAGEMENT] {
        let document: Value = serde_json::from_str(&document(parts)).expect("JSON");
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("inside the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}

/// The names of a struct's fields, asked of its `Deserialize`.
fn field_names<T: DeserializeOwned>() -> BTreeSet<String> {
    struct Names<'n>(&'n mut BTreeSet<String>);
    impl<'de> Deserializer<'de> for Names<'_> {
        type Error = serde_json::Error;
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(Error::custom("only the names are wanted"))
        }
        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            self.0.extend(fields.iter().map(|&field| field.to_owned()));
            self.deserialize_any(visitor)
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }
    let mut names = BTreeSet::new();
    assert!(T::deserialize(Names(&mut names)).is_err());
    names
}

#[test]
fn request_schemas_have_the_fields_that_are_read() {
    let document = parsed(Port::Serving);
    let schemas = &document["components"]["schemas"];
    let properties = |pointer: &str| -> BTreeSet<String> {
        let properties = schemas.pointer(pointer).and_then(Value::as_object);
        let properties = properties.unwrap_or_else(|| panic!("{pointer}"));
        properties.keys().cloned().collect()
    };
    let mut known: BTreeMap<&str, BTreeSet<String>> = openai::field_names(FieldNames);
    known.extend(tgi::field_names(FieldNames));
    assert!(known.len() >= 7);
    for (pointer, names) in known {
        assert_eq!(properties(pointer), names, "{pointer}");
    }
}

/// Lets a dialect ask for the names of its own types, which only it can see.
pub struct FieldNames;

impl FieldNames {
    /// The fields of `T`.
    pub fn of<T: DeserializeOwned>(&self) -> BTreeSet<String> {
        field_names::<T>()
    }
}
