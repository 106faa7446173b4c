//! Each row of the table in docs/reliability.md names tests, and each of these exists.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The rows: fault and tests.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let table = page.lines().filter(|line| line.starts_with("| "));
    let cells = table.map(|line| line.trim_matches('|').split(" | ").collect::<Vec<_>>());
    let rows =
        cells.filter(|cells| cells.len() == 5 && !["fault", "---"].contains(&cells[0].trim()));
    rows.map(|cells| (cells[0].trim(), cells[4].trim()))
        .collect()
}

/// What is wrong with a name: `file::test` of the real server's tests, or of the simulation's, or one of its files.
fn problem(folder: &Path, name: &str) -> Option<String> {
    let (file, test) = match name.split_once("::") {
        Some((file, test)) => (file, Some(test)),
        None => (name, None),
    };
    let path = folder.join(file).with_extension("rs");
    let Ok(text) = fs::read_to_string(&path) else {
        return Some(format!("{name}: there is no {}", path.display()));
    };
    let is_there = |test: &str| {
        let function = text.find(&format!("fn {test}("));
        // Its attribute stands right before it.
        function.is_some_and(|at| text[..at].trim_end().ends_with("#[test]"))
    };
    match test {
        Some(test) if !is_there(test) => Some(format!("{name}: there is no such test")),
        Some(_) => None,
        None if text.contains("#[test]") => None,
        None => Some(format!("{name}: a file without tests")),
    }
}

/// Names between backticks, and whether `sim` stands before each.
fn names(cell: &str) -> Vec<(&str, bool)> {
    let parts: Vec<_> = cell.split('`').collect();
    let pairs = parts.chunks_exact(2);
    pairs
        .map(|pair| (pair[1], pair[0].trim_end().ends_with("sim")))
        .collect()
}

#[test]
fn every_row_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/reliability.md")).expect("the page");
    let rows = rows(&page);
    assert!(rows.len() > 20, "only {} rows were read", rows.len());
    let mut problems = Vec::new();
    for (fault, cell) in rows {
        let names = names(cell);
        if names.is_empty() {
            problems.push(format!("{fault}: no test"));
        }
        for (name, simulated) in names {
            let folder = if simulated {
                "sim/tests"
            } else {
                "tests/server"
            };
            problems.extend(problem(&root().join(folder), name));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_name_without_a_test_is_noticed() {
    let folder = root().join("tests/server");
    assert_eq!(
        problem(
            &folder,
            "faults::a_streamed_answer_goes_on_after_the_restart"
        ),
        None
    );
    assert!(problem(&folder, "faults::no_such_test").is_some());
    assert!(problem(&folder, "no_such_file::test").is_some());
    assert!(problem(&folder, "http").is_some());
    assert_eq!(names("`a::b`, sim `c`"), [("a::b", false), ("c", true)]);
}
