//! What must be absent from this repository, checked on its text. Each rule says why it exists when it is broken.
//! Not here: formatting and lints (`cargo fmt`, `cargo clippy`) and licences (`deny.toml`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Our crates and which of ours each may name.
const EDGES: &[(&str, &[&str])] = &[
    ("acl-sys", &[]),
    ("ascend", &["acl-sys", "device"]),
    ("ascend/standin", &["acl-sys"]),
    ("kernels", &[]),
    ("engine", &[]),
    ("device", &["kernels"]),
    ("models", &["engine", "device"]),
    ("actors", &["engine"]),
    ("sim", &["actors", "engine"]),
];

/// Longest file a reader should meet.
const MAX_LINES: usize = 500;

struct Source {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files of the workspace, with paths relative to its root.
fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches", "examples"] {
        collect(&root().join(folder), &mut found);
    }
    for (name, _) in EDGES {
        collect(&root().join(name), &mut found);
    }
    assert!(
        found.len() > 20,
        "the walk found only {} files",
        found.len()
    );
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|n| n != "target") {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).expect("a readable source file");
            let path = path
                .strip_prefix(root())
                .expect("below the root")
                .display()
                .to_string();
            found.push(Source { path, text });
        }
    }
}

/// The file's code lines with their numbers: comments are left out, and so are tests: whole files of them, and those that
/// stand last in a file.
fn code_lines(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let is_tests = source.path.ends_with("/tests.rs") || source.path.contains("/src/tests/");
    source
        .text
        .lines()
        .enumerate()
        .take_while(move |_| !is_tests)
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(i, line)| (i + 1, line))
}

fn starts_with_any(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|p| path.starts_with(p))
}

fn assert_none(broken: Vec<String>, why: &str) {
    assert!(broken.is_empty(), "{why}\n{}", broken.join("\n"));
}

/// Reports each code line below `prefixes` that holds one of `words`.
fn lines_with(prefixes: &[&str], words: &[&str]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in sources()
        .iter()
        .filter(|s| starts_with_any(&s.path, prefixes))
    {
        for (number, line) in code_lines(source) {
            if words.iter().any(|w| line.contains(w)) {
                broken.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    broken
}

#[test]
fn the_arrows_between_crates_point_one_way() {
    for (name, allowed) in EDGES {
        let manifest =
            fs::read_to_string(root().join(name).join("Cargo.toml")).expect("a manifest");
        let normal = manifest
            .split("[dev-dependencies]")
            .next()
            .unwrap_or_default();
        for (other, _) in EDGES {
            let names_it = normal
                .lines()
                .any(|l| l.starts_with(&format!("ropeteam-{}", other.replace('/', "-"))));
            assert!(
                !names_it || allowed.contains(other),
                "{name}/Cargo.toml names ropeteam-{other}; allowed: {allowed:?}"
            );
        }
    }
}

#[test]
fn actix_is_known_to_actors_sim_and_the_server_only() {
    let words = ["actix::", "actix_web::", "actix_rt::"];
    assert_none(
        lines_with(
            &[
                "engine/", "models/", "device/", "kernels/", "acl-sys/", "ascend/",
            ],
            &words,
        ),
        "the logic below the actors must run without them",
    );
}

#[test]
fn json_and_http_stay_in_the_server() {
    assert_none(
        lines_with(
            &["engine/src", "device/src", "kernels/src", "actors/src"],
            &["serde_json::", "http::"],
        ),
        "wire formats belong to src/ (and a checkpoint's own JSON to models/)",
    );
    assert_none(
        lines_with(&["models/src"], &["actix_web::", "http::"]),
        "models know no HTTP",
    );
}

#[test]
fn unsafe_stands_in_kernels_bindings_and_the_one_mmap_line() {
    let mut broken = lines_with(
        &["engine/", "actors/", "sim/", "device/", "src/"],
        &["unsafe "],
    );
    let in_models = lines_with(&["models/"], &["unsafe "]);
    if in_models.len() > 1 || in_models.iter().any(|l| !l.contains("checkpoint")) {
        broken.extend(in_models);
    }
    assert_none(
        broken,
        "unsafe is allowed in kernels/, acl-sys/, ascend/ and in the one line of models/ that maps a file",
    );
}

#[test]
fn the_scheduler_never_sees_a_block_id() {
    let files = [
        "actors/src/scheduler",
        "engine/src/scheduler",
        "engine/src/queue",
        "engine/src/placement",
        "engine/src/credits",
    ];
    assert_none(
        lines_with(&files, &["BlockId"]),
        "the scheduler spends credits; blocks belong to devices",
    );
}

#[test]
fn the_engine_reads_no_clock() {
    let words = [
        "Instant::now",
        "SystemTime",
        "thread::",
        "std::fs",
        "std::net",
        "async fn",
        "tokio",
    ];
    assert_none(
        lines_with(&["engine/src"], &words),
        "time comes in as an argument, and nothing else comes in at all",
    );
}

#[test]
fn devices_and_kernels_know_no_model() {
    let names = [
        "llama", "Llama", "qwen", "Qwen", "mistral", "Mistral", "glm", "Glm", "smollm", "SmolLM",
    ];
    assert_none(
        lines_with(
            &["device/src", "kernels/src", "acl-sys/src", "ascend/"],
            &names,
        ),
        "families live in models/src/families",
    );
}

#[test]
fn features_switch_whole_items_only() {
    let broken = sources()
        .iter()
        .flat_map(|s| {
            code_lines(s)
                .filter(|(_, l)| l.contains("cfg(feature") || l.contains("cfg!(feature"))
                .filter(|(_, l)| l.starts_with(' '))
                .map(|(n, l)| format!("{}:{n}: {}", s.path, l.trim()))
                .collect::<Vec<_>>()
        })
        .filter(|l| !l.starts_with("tests/tidy.rs"))
        .collect();
    assert_none(
        broken,
        "a feature inside a function body makes two programs of one text",
    );
}

#[test]
fn every_file_says_what_it_is() {
    let broken = sources()
        .iter()
        .filter(|s| !s.text.starts_with("//!"))
        .map(|s| s.path.clone())
        .collect();
    assert_none(
        broken,
        "each file opens with `//!`: what it is, what it is not, where to go next",
    );
}

#[test]
fn no_file_is_too_long_to_read() {
    let broken = sources()
        .iter()
        .filter(|s| s.text.lines().count() > MAX_LINES)
        .map(|s| format!("{}: {} lines", s.path, s.text.lines().count()))
        .collect();
    assert_none(broken, "a file over 500 lines hides a second noun");
}

#[test]
fn names_say_what_a_file_holds() {
    let banned = [
        "util", "utils", "helper", "helpers", "common", "misc", "manager",
    ];
    let broken = sources()
        .iter()
        .filter(|s| s.path.split(['/', '.']).any(|part| banned.contains(&part)))
        .map(|s| s.path.clone())
        .collect();
    assert_none(broken, "such a name says nothing");
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["todo!(", "unimplemented!(", "dbg!("];
    let mut broken = lines_with(
        &[
            "src/", "engine/", "actors/", "models/", "device/", "kernels/", "sim/", "acl-sys/",
            "ascend/",
        ],
        &words,
    );
    for source in sources().iter().filter(|s| s.path != "tests/tidy.rs") {
        for (i, line) in source.text.lines().enumerate() {
            if line.contains("TODO") || line.contains("FIXME") {
                broken.push(format!("{}:{}: {}", source.path, i + 1, line.trim()));
            }
        }
    }
    assert_none(
        broken,
        "what is not built is refused with a clear error, not marked for later",
    );
}

/// The files that ARCHITECTURE.md lists as the way of a request, in order.
fn main_path() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let list = text
        .split("## From the route to the kernel")
        .nth(1)
        .expect("the section with the list");
    let list = list.split("\n## ").next().unwrap_or_default();
    list.lines()
        .filter(|l| {
            l.trim_start()
                .chars()
                .next()
                .is_some_and(|c| c.is_ascii_digit())
        })
        .filter_map(|l| l.split('`').nth(1).map(str::to_owned))
        .collect()
}

#[test]
fn a_reader_opens_at_most_twelve_files_from_the_route_to_the_kernel() {
    let files = main_path();
    assert!(
        (8..=12).contains(&files.len()),
        "the list has {} files: {files:?}",
        files.len()
    );
    assert_eq!(
        files.iter().collect::<BTreeSet<_>>().len(),
        files.len(),
        "each file once"
    );
    for file in &files {
        let text = fs::read_to_string(root().join(file));
        let lines = text
            .unwrap_or_else(|e| panic!("{file}: {e}"))
            .lines()
            .count();
        assert!(lines <= MAX_LINES, "{file} has {lines} lines");
    }
}

/// Files of one folder and which of their neighbours each names by `super::`.
fn neighbour_graph(folder: &str, sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let stem = |path: &str| {
        path.rsplit('/')
            .next()
            .unwrap_or(path)
            .trim_end_matches(".rs")
            .to_owned()
    };
    let inside = |s: &&Source| {
        s.path
            .rsplit_once('/')
            .is_some_and(|(parent, _)| parent == folder)
    };
    let files: Vec<_> = sources.iter().filter(inside).collect();
    let names: BTreeSet<_> = files.iter().map(|s| stem(&s.path)).collect();
    let mut graph = BTreeMap::new();
    for source in files
        .iter()
        .filter(|s| !["mod", "lib", "main"].contains(&stem(&s.path).as_str()))
    {
        let named = code_lines(source).flat_map(|(_, line)| names_after("super::", line));
        let named = named.filter(|name| names.contains(name)).collect();
        graph.insert(stem(&source.path), named);
    }
    graph
}

fn names_after<'a>(prefix: &'a str, line: &'a str) -> impl Iterator<Item = String> + 'a {
    let name = |part: &str| {
        part.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    line.split(prefix).skip(1).map(name)
}

/// Top-level modules of a crate and which of them each names by `crate::`.
fn module_graph(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources();
    let own: Vec<_> = sources
        .iter()
        .filter(|s| s.path.starts_with(folder))
        .collect();
    let module_of = |path: &str| {
        let rest = path[folder.len()..].trim_start_matches('/');
        rest.split('/')
            .next()
            .unwrap_or(rest)
            .trim_end_matches(".rs")
            .to_owned()
    };
    let modules: BTreeSet<_> = own.iter().map(|s| module_of(&s.path)).collect();
    let mut graph = BTreeMap::new();
    for source in own {
        let module = module_of(&source.path);
        if module == "lib" || module == "main" {
            continue;
        }
        let named: &mut BTreeSet<String> = graph.entry(module.clone()).or_default();
        let found = code_lines(source).flat_map(|(_, line)| names_after("crate::", line));
        named.extend(found.filter(|name| *name != module && modules.contains(name)));
    }
    graph
}

fn find_circle(
    graph: &BTreeMap<String, BTreeSet<String>>,
    path: &mut Vec<String>,
) -> Option<Vec<String>> {
    let last = path.last()?.clone();
    for next in graph.get(&last).into_iter().flatten() {
        if let Some(at) = path.iter().position(|m| m == next) {
            return Some(path[at..].to_vec());
        }
        path.push(next.clone());
        let circle = find_circle(graph, path);
        path.pop();
        if circle.is_some() {
            return circle;
        }
    }
    None
}

#[test]
fn no_circle_between_modules() {
    for folder in [
        "src",
        "engine/src",
        "actors/src",
        "models/src",
        "device/src",
        "kernels/src",
        "sim/src",
        "acl-sys/src",
        "ascend/standin/src",
    ] {
        let graph = module_graph(folder);
        for module in graph.keys() {
            let circle = find_circle(&graph, &mut vec![module.clone()]);
            assert!(
                circle.is_none(),
                "modules of {folder} name each other in a circle: {circle:?}"
            );
        }
    }
}

#[test]
fn no_circle_between_neighbouring_files() {
    let sources = sources();
    let folders: BTreeSet<_> = sources
        .iter()
        .filter_map(|s| s.path.rsplit_once('/'))
        .collect();
    for folder in folders
        .iter()
        .map(|(parent, _)| parent)
        .collect::<BTreeSet<_>>()
    {
        let graph = neighbour_graph(folder, &sources);
        for file in graph.keys() {
            let circle = find_circle(&graph, &mut vec![file.clone()]);
            assert!(
                circle.is_none(),
                "files in {folder} name each other in a circle: {circle:?}"
            );
        }
    }
}
