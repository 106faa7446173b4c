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
        all.expired += seen.expired;
        all.losses += seen.losses;
        all.given_up += seen.given_up;
        all.refused += seen.refused;
        all.replays += seen.replays;
        all.preemptions += seen.preemptions;
    }
    // Worlds in which nothing goes wrong would prove nothing.
    let counts = [all.aborted, all.refused, all.expired, all.replays];
    let devices = [all.losses, all.given_up].map(|count| count as usize);
    for count in counts
        .into_iter()
        .chain(devices)
        .chain([all.preemptions as usize])
    {
        assert!(count > 100, "{all:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(42), run(42));
}
