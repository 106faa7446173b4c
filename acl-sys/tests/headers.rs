//! Compares what we declare with official headers: names, numbers and types of parameters, values of constants. Runs when asked
//! to (`just acl-headers FOLDER`), on any folder of headers; what that release does not declare yet is listed. Constness is not
//! compared: it changes no call.

use ropeteam_acl_sys::acl_mdl::Graphs;
use ropeteam_acl_sys::acl_meta::Meta;
use ropeteam_acl_sys::acl_rt::Runtime;
use ropeteam_acl_sys::aclnn::Operators;
use ropeteam_acl_sys::{Signature, code, types};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Result and parameter types of C functions by name, and values of constants by name.
#[derive(Default)]
struct Headers {
    functions: BTreeMap<String, (String, Vec<String>)>,
    numbers: BTreeMap<String, i64>,
}

#[test]
#[ignore = "needs official headers: just acl-headers FOLDER"]
fn our_declarations_are_those_of_the_official_headers() {
    let folder = std::env::var("ACL_HEADERS").expect("ACL_HEADERS names a folder of headers");
    let mut headers = Headers::default();
    read_folder(Path::new(&folder), &mut headers);
    let mut wrong = Vec::new();
    let mut unseen = Vec::new();
    assert!(
        headers.functions.contains_key("aclrtMalloc"),
        "{folder} holds no acl_rt.h"
    );
    let tables = [
        Runtime::SIGNATURES,
        Graphs::SIGNATURES,
        Meta::SIGNATURES,
        Operators::SIGNATURES,
    ];
    for signature in tables.concat() {
        match headers.functions.get(signature.name) {
            Some(official) => wrong.extend(difference(&signature, official)),
            None => unseen.push(signature.name),
        }
    }
    let codes = code::CODES
        .iter()
        .map(|(name, value)| (*name, i64::from(*value)));
    let flags = types::FLAGS
        .iter()
        .map(|(name, value)| (*name, i64::from(*value)));
    for (name, ours) in codes.chain(flags).chain(types::ENUM_VALUES.iter().copied()) {
        match headers.numbers.get(name) {
            Some(official) if *official != ours => {
                wrong.push(format!("{name}: {ours} here, {official} there"));
            }
            Some(_) => {}
            None => unseen.push(name),
        }
    }
    println!("not in these headers, so not compared: {unseen:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn difference(ours: &Signature, (returns, parameters): &(String, Vec<String>)) -> Option<String> {
    let ours_parameters: Vec<String> = ours.parameters.iter().map(|t| c_type(t)).collect();
    let same = c_type(ours.returns) == *returns && ours_parameters == *parameters;
    (!same).then(|| {
        let (name, result) = (ours.name, c_type(ours.returns));
        format!("{name}: {result} {ours_parameters:?} here, {returns} {parameters:?} there")
    })
}

/// A type of ours in C's words, without constness.
fn c_type(rust: &str) -> String {
    let mut name = rust.trim();
    let mut stars = String::new();
    while let Some(rest) = name
        .strip_prefix("*const ")
        .or_else(|| name.strip_prefix("*mut "))
    {
        stars.push('*');
        name = rest;
    }
    let name = match name {
        "c_void" => "void",
        "c_char" => "char",
        "c_int" => "int32_t",
        "i8" => "int8_t",
        "i32" => "int32_t",
        "u32" => "uint32_t",
        "i64" => "int64_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "f32" => "float",
        "f64" => "double",
        other => other,
    };
    format!("{name}{stars}")
}

fn read_folder(folder: &Path, headers: &mut Headers) {
    let entries = std::fs::read_dir(folder).expect("a folder of headers");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            read_folder(&path, headers);
        } else if path.extension().is_some_and(|e| e == "h") {
            read_header(&path, headers);
        }
    }
}

fn read_header(path: &PathBuf, headers: &mut Headers) {
    let bytes = std::fs::read(path).expect("a header");
    let text = String::from_utf8_lossy(&bytes).replace("\\\n", " ");
    let text = without_comments(&text);
    let text = text.replace("__attribute__((visibility(\"default\")))", "");
    let text = without_deprecations(&text);
    for line in text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("#define "))
    {
        if let Some((name, value)) = line.trim().split_once(char::is_whitespace) {
            headers
                .numbers
                .extend(number(value).map(|v| (name.to_owned(), v)));
        }
    }
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect::<Vec<_>>()
        .join(" ");
    for statement in code.split(';') {
        read_statement(statement, headers);
    }
}

fn read_statement(statement: &str, headers: &mut Headers) {
    if statement.contains("return ") {
        return; // A C++ shorthand with a body.
    }
    if let Some((_, body)) = statement
        .split_once("enum ")
        .filter(|(_, s)| s.contains('{'))
    {
        return read_enum(body, headers);
    }
    if let Some((name, value)) = statement.split_once('=') {
        let name = name.split_whitespace().last().unwrap_or_default();
        headers
            .numbers
            .extend(number(value).map(|v| (name.to_owned(), v)));
    } else if let Some((head, rest)) = statement.split_once('(') {
        let Some((parameters, _)) = rest.rsplit_once(')') else {
            return;
        };
        let (returns, name) = split_name(head);
        if returns.is_empty() {
            return; // A call, in a macro or a shorthand.
        }
        let parameters = parameters.split(',').map(str::trim);
        let parameters = parameters
            .filter(|p| !p.is_empty() && *p != "void")
            .map(|p| split_name(p).0)
            .collect();
        headers.functions.insert(name, (returns, parameters));
    }
}

fn read_enum(body: &str, headers: &mut Headers) {
    let inner = body.split('{').nth(1).unwrap_or_default();
    let inner = inner.split('}').next().unwrap_or_default();
    let mut next = 0;
    for item in inner.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        next = number(value).unwrap_or(next);
        headers.numbers.insert(name.trim().to_owned(), next);
        next += 1;
    }
}

/// Splits a declaration into its type (no constness, no spaces, pointers last) and its name.
fn split_name(declaration: &str) -> (String, String) {
    // A default value, which C++ headers give, is no part of the type.
    let declaration = declaration.split('=').next().unwrap_or_default();
    let spaced = declaration.replace('*', " * ");
    let ignored = ["const", "extern", "\"C\"", "{", "}"];
    let words: Vec<&str> = spaced
        .split_whitespace()
        .filter(|w| {
            !ignored.contains(w) && !w.ends_with("_VISIBILITY") && !w.starts_with("ACL_DEPRECATED")
        })
        .collect();
    let (name, kind) = words.split_last().map_or(("", &[][..]), |(n, k)| (*n, k));
    let stars = "*".repeat(kind.iter().filter(|w| **w == "*").count());
    let base = kind
        .iter()
        .rfind(|w| **w != "*")
        .copied()
        .unwrap_or_default();
    let base = if base == "int" { "int32_t" } else { base };
    (format!("{base}{stars}"), name.to_owned())
}

/// A whole number as C writes it.
fn number(text: &str) -> Option<i64> {
    let text = text
        .trim()
        .trim_matches(['(', ')'])
        .trim_end_matches(['U', 'L']);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Without `ACL_DEPRECATED_MESSAGE("..")`, which may stand before a declaration.
fn without_deprecations(text: &str) -> String {
    let mut parts = text.split("ACL_DEPRECATED_MESSAGE(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| {
        kept + part.split_once("\")").map_or(part, |(_, rest)| rest)
    })
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(at) = rest.find("/*") {
        kept.push_str(&rest[..at]);
        rest = rest[at..]
            .find("*/")
            .map_or("", |end| &rest[at + end + 2..]);
    }
    kept.push_str(rest);
    let lines = kept
        .lines()
        .map(|l| l.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}
