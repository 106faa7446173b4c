//! The fuzzing targets without cargo-fuzz: every file of the corpora, and some hundreds of inputs each that chance makes of them, the
//! same in every run. A failure leaves its input in the temporary folder of the build; put it into `fuzz/corpus/TARGET`. With
//! `ROPETEAM_FUZZ_SECONDS` each target runs for so long, `ROPETEAM_FUZZ_SEED` is another beginning.

#[path = "../fuzz/src/lib.rs"]
#[allow(dead_code)]
mod targets;

use ropeteam_sim::dice::Dice;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

/// Longest time for one input; much more than any takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most memory that all inputs together may take at a time, beyond what the tests take anyway.
const MEMORY_KIB: u64 = 1 << 20;
/// Longest input that chance makes.
const BYTES_MAX: usize = 1 << 16;

/// Inputs per target that chance makes in a plain test run.
const INPUTS: u64 = 500;

/// Pieces that formats give a meaning to.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "-1",
    "0",
    "1e308",
    "18446744073709551615",
    "\\u0000",
    "\\ud800",
    "{%",
    "%}",
    "{{",
    "}}",
    "for x in range(999999)",
    "endfor",
    "$ref",
    "#",
    "anyOf",
    "pattern",
    "(a+)+$",
    "{0,4294967295}",
    "maxLength",
    "::=",
    "\n",
    "stream",
    "n",
    "\u{1f9d7}",
];

fn setting(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(default, |word| word.parse().expect("a whole number"))
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let all = files
        .iter()
        .map(|file| std::fs::read(file).expect("a file"));
    all.collect()
}

/// Changes a few places.
fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], dice: &mut Dice) {
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(input.len() as u64 + 1) as usize;
        let end = (at + dice.below(40) as usize).min(input.len());
        match dice.below(7) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = dice.throw() as u8,
            2 => drop(input.drain(at..end)),
            3 => {
                let part = input[at..end].to_vec();
                for _ in 0..1 + dice.below(20) {
                    input.splice(at..at, part.iter().copied());
                }
            }
            4 => {
                let other = &others[dice.below(others.len() as u64) as usize];
                let from = dice.below(other.len() as u64 + 1) as usize;
                input.splice(at..end, other[from..].iter().copied());
            }
            5 if at + 8 <= input.len() => {
                let number = [0, 1, u64::MAX, 1 << 31, 1 << 40][dice.below(5) as usize];
                input[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            _ => {
                let word = WORDS[dice.below(WORDS.len() as u64) as usize];
                input.splice(at..at, word.bytes());
            }
        }
    }
    input.truncate(BYTES_MAX);
}

fn check(name: &str, target: Target, input: &[u8]) -> Result<(), String> {
    let begun = Instant::now();
    let failed = catch_unwind(|| target(input)).is_err();
    let (took, memory) = (begun.elapsed(), peak_memory_kib());
    if failed || took > PATIENCE || memory > MEMORY_KIB {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
        std::fs::write(&file, input).expect("a file");
        let (file, bytes) = (file.display(), input.len());
        let what = format!("panic {failed}, {took:?}, {memory} KiB");
        return Err(format!("{name}: {bytes} bytes in {file}: {what}"));
    }
    Ok(())
}

/// Runs a target, for `time` if it is given; the first input that is bad.
fn run(name: &str, target: Target, time: Option<Duration>, mut dice: Dice) -> Result<(), String> {
    let corpus = corpus(name);
    for input in &corpus {
        check(name, target, input)?;
    }
    let (begun, mut inputs) = (Instant::now(), 0);
    while time.map_or(inputs < INPUTS, |time| begun.elapsed() < time) {
        let mut input = corpus[dice.below(corpus.len() as u64) as usize].clone();
        mutate(&mut input, &corpus, &mut dice);
        check(name, target, &input)?;
        inputs += 1;
    }
    eprintln!("{name}: {inputs} inputs, at most {} KiB", peak_memory_kib());
    Ok(())
}

#[test]
fn no_input_panics_hangs_or_takes_memory_without_bound() {
    let seconds = setting("ROPETEAM_FUZZ_SECONDS", 0);
    let time = (seconds > 0).then(|| Duration::from_secs(seconds));
    let seed = setting("ROPETEAM_FUZZ_SEED", 1);
    let mut bad = Vec::new();
    for &(name, target) in TARGETS {
        bad.extend(run(name, target, time, Dice::new(seed)).err());
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
