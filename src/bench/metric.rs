//! The figures that two runs are compared by: each with its name, its unit and which way is better.

use super::summary::{Spread, Summary};

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Throughputs.
    Higher,
    /// Latencies.
    Lower,
}

/// One figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// What it is.
    pub name: String,
    /// What it is counted in.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// How much; `None` when the run does not tell.
    pub value: Option<f64>,
}

/// The figures of a run, always the same ones in the same order.
pub fn metrics(summary: &Summary) -> Vec<Metric> {
    let rate = |name: &str, unit, value: Option<f64>| Metric {
        name: name.to_owned(),
        unit,
        better: Better::Higher,
        value: value.filter(|_| summary.succeeded > 0),
    };
    let mut all = vec![
        rate("requests", "/s", Some(summary.requests_per_s)),
        rate("output tokens", "/s", Some(summary.output_tokens_per_s)),
        rate("all tokens", "/s", summary.total_tokens_per_s),
    ];
    for (name, spread) in latencies(summary) {
        let Some(spread) = spread else { continue };
        for (part, value) in parts(spread) {
            all.push(Metric {
                name: format!("{name} {part}"),
                unit: "ms",
                better: Better::Lower,
                value: Some(value),
            });
        }
    }
    // Says why a server that saw the prompts before is faster.
    all.push(rate(
        "cached prompt tokens",
        "",
        Some(summary.cached_tokens as f64),
    ));
    all
}

/// The latencies of a run by their names.
pub fn latencies(summary: &Summary) -> [(&'static str, Option<Spread>); 4] {
    [
        ("TTFT", summary.ttft_ms),
        ("TPOT", summary.tpot_ms),
        ("inter-token", summary.itl_ms),
        ("end to end", summary.e2e_ms),
    ]
}

/// The numbers of a distribution by their names.
pub fn parts(spread: Spread) -> [(&'static str, f64); 5] {
    [
        ("mean", spread.mean),
        ("p50", spread.p50),
        ("p90", spread.p90),
        ("p99", spread.p99),
        ("max", spread.max),
    ]
}
