//! Repeats runs of ring 2: `cargo run -p ropeteam-sim --example ring2 -- --seed N` lives through one world, `--seeds N` through the
//! first N. An example and no part of the program, so that only tests need tokio's virtual clock.

#[path = "../tests/world/random.rs"]
mod random;
#[path = "../tests/world/mod.rs"]
mod world;

use std::panic::catch_unwind;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let seeds = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--seed", seed] => number(seed).map(|seed| seed..seed + 1),
        ["--seeds", count] => number(count).map(|count| 0..count),
        _ => None,
    };
    let Some(seeds) = seeds else {
        eprintln!("usage: ring2 --seed N | --seeds COUNT");
        return ExitCode::from(2);
    };
    let one = seeds.end - seeds.start == 1;
    for seed in seeds {
        match catch_unwind(|| random::run(seed)) {
            Ok(Ok(seen)) if one => println!("seed {seed}: {seen:#?}"),
            Ok(Ok(_)) => {}
            Ok(Err(broken)) => {
                println!("seed {seed}: {broken}");
                return ExitCode::FAILURE;
            }
            Err(_) => {
                println!("seed {seed} panicked");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
