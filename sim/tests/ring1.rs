//! Ring 1 in each run of the tests: many seeds, and those that failed once.

use ropeteam_sim::ring1::{Summary, run};

/// Seeds in each run.
const SEEDS: u64 = 2000;

/// Seeds that failed once, one a line with what broke; `cargo run -p ropeteam-sim -- --seed N` repeats one.
const REGRESSIONS: &str = include_str!("ring1_regressions.txt");

#[test]
fn every_seed_keeps_every_promise() {
    let regressions = REGRESSIONS.lines().filter(|line| !line.starts_with('#'));
    let regressions = regressions.filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let mut all = Summary::default();
    for seed in regressions.chain(0..SEEDS) {
        let seen = run(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        all.aborted += seen.aborted;
        all.losses += seen.losses;
        all.refused += seen.refused;
        all.replays += seen.replays;
        all.preemptions += seen.preemptions;
    }
    // Worlds in which nothing goes wrong would prove nothing.
    for count in [all.aborted, all.losses as usize, all.refused, all.replays] {
        assert!(count > 100, "{all:?}");
    }
    assert!(all.preemptions > 100, "{all:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(42), run(42));
}
