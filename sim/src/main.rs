//! Repeats runs of ring 1: `cargo run -p ropeteam-sim -- --seed N` lives through one world, `--seeds N` through the first N.

use ropeteam_sim::ring1;
use std::process::ExitCode;

const USAGE: &str = "usage: ropeteam-sim --seed N | --seeds COUNT";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let seeds = match words[..] {
        ["--seed", seed] => seed.parse().map(|seed| seed..=seed),
        ["--seeds", count] => count.parse().map(|count: u64| 0..=count.saturating_sub(1)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let Ok(seeds) = seeds else {
        eprintln!("{USAGE}: N and COUNT are whole numbers");
        return ExitCode::from(2);
    };
    let many = seeds.start() != seeds.end();
    for seed in seeds {
        match ring1::run(seed) {
            Ok(_) if many => {}
            Ok(summary) => println!("seed {seed}: {summary:?}"),
            Err(broken) => {
                println!("seed {seed}: {broken}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
