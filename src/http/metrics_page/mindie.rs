//! MindIE's names, which have no prefix, with its label `model_name`. What it counts for the whole server is summed over devices.

use super::samples::{Samples, head, joined, label, line};
use ropeteam_engine::observe::metric::{self, Kind, Metric};

/// Its names for metrics of ours that are the same.
const ALIASES: &[(&str, Metric)] = &[
    ("request_received_total", metric::REQUESTS_RECEIVED),
    ("num_requests_running", metric::REQUESTS_RUNNING),
    ("num_requests_waiting", metric::REQUESTS_WAITING),
    (
        "avg_prompt_throughput_toks_per_s",
        metric::PROMPT_TOKENS_PER_SECOND,
    ),
    (
        "avg_generation_throughput_toks_per_s",
        metric::GENERATED_TOKENS_PER_SECOND,
    ),
    ("failed_request_perc", metric::FAILED_REQUESTS_RATIO),
    ("prompt_tokens_total", metric::PROMPT_TOKENS),
    ("generation_tokens_total", metric::GENERATED_TOKENS),
    ("time_to_first_token_seconds", metric::TIME_TO_FIRST_TOKEN),
    (
        "time_per_output_token_seconds",
        metric::TIME_PER_OUTPUT_TOKEN,
    ),
    ("e2e_request_latency_seconds", metric::REQUEST_DURATION),
    ("request_prompt_tokens", metric::REQUEST_PROMPT_TOKENS),
    (
        "request_generation_tokens",
        metric::REQUEST_GENERATED_TOKENS,
    ),
];

/// Appends them.
pub fn add(samples: &Samples<'_>, model: &str, more: &mut String) {
    let model = label("model_name", model);
    for (alias, metric) in ALIASES {
        samples.alias(alias, metric, |own| joined(&model, own), more);
    }
    for (name, kind, help, value) in summed(samples) {
        head(name, kind, help, more);
        line(name, &model, value, more);
    }
}

/// What has no single counterpart.
fn summed(samples: &Samples<'_>) -> [(&'static str, Kind, &'static str, f64); 9] {
    let all = |metric: &Metric| samples.sum(metric, |_| true);
    let good = samples.sum(&metric::REQUESTS_FINISHED, |sample| {
        sample.is("outcome", &["stop", "length"])
    });
    let bad = all(&metric::REQUESTS_FINISHED) - good + all(&metric::REQUESTS_REFUSED);
    let (blocks, free) = (all(&metric::KV_BLOCKS), all(&metric::KV_BLOCKS_FREE));
    let (queries, hits) = (
        all(&metric::PREFIX_CACHE_QUERIES),
        all(&metric::PREFIX_CACHE_HITS),
    );
    let none =
        "Always 0: nothing is swapped out, a sequence that loses its blocks is computed again.";
    [
        (
            "request_success_total",
            Kind::Counter,
            "Requests that came to their end.",
            good,
        ),
        (
            "request_failed_total",
            Kind::Counter,
            "Requests that were refused, failed, or whose client left.",
            bad,
        ),
        ("num_requests_swapped", Kind::Gauge, none, 0.0),
        ("cpu_cache_usage_perc", Kind::Gauge, none, 0.0),
        (
            "npu_cache_usage_perc",
            Kind::Gauge,
            "Share of the KV cache of all devices that sequences hold.",
            share(blocks - free, blocks),
        ),
        (
            "npu_prefix_cache_hit_rate",
            Kind::Gauge,
            "Share of the prompt tokens looked up in the prefix cache that were found.",
            share(hits, queries),
        ),
        (
            "num_preemptions_total",
            Kind::Counter,
            "Sequences that lost their blocks and were computed again.",
            all(&metric::PREEMPTIONS),
        ),
        (
            "all_radix_match_num",
            Kind::Counter,
            "Prompt tokens looked up in the prefix cache.",
            queries,
        ),
        (
            "npu_radix_match_hit_num",
            Kind::Counter,
            "Prompt tokens found in the prefix cache.",
            hits,
        ),
    ]
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_per_device_is_summed() {
        let page = "ropeteam_kv_blocks{device=\"0\"} 10\nropeteam_kv_blocks{device=\"1\"} 30\n\
             ropeteam_kv_blocks_free{device=\"0\"} 5\nropeteam_kv_blocks_free{device=\"1\"} 25\n\
             ropeteam_requests_finished_total{outcome=\"stop\"} 7\n\
             ropeteam_requests_finished_total{outcome=\"timeout\"} 1\n\
             ropeteam_requests_refused_total{reason=\"queue_full\"} 2\n\
             ropeteam_prefix_cache_queries_total{device=\"0\"} 8\n\
             ropeteam_prefix_cache_hits_total{device=\"0\"} 2\n\
             ropeteam_requests_running 3\n";
        let mut more = String::new();
        add(&Samples::of(page), "m", &mut more);
        for line in [
            "npu_cache_usage_perc{model_name=\"m\"} 0.25",
            "request_success_total{model_name=\"m\"} 7",
            "request_failed_total{model_name=\"m\"} 3",
            "npu_prefix_cache_hit_rate{model_name=\"m\"} 0.25",
            "num_requests_running{model_name=\"m\"} 3",
            "num_requests_swapped{model_name=\"m\"} 0",
        ] {
            assert!(more.lines().any(|found| found == line), "{line} in\n{more}");
        }
    }
}
