//! vLLM's names, which its dashboards and the gateways in front of servers look for.

use super::samples::{Samples, head, joined, label, line};
use ropeteam_actors::Limits;
use ropeteam_engine::observe::metric::{self, Kind, Metric};

/// Its names for our metrics.
const ALIASES: &[(&str, Metric)] = &[
    ("vllm:num_requests_running", metric::REQUESTS_RUNNING),
    ("vllm:num_requests_waiting", metric::REQUESTS_WAITING),
    ("vllm:kv_cache_usage_perc", metric::KV_USAGE),
    ("vllm:prompt_tokens_total", metric::PROMPT_TOKENS),
    ("vllm:generation_tokens_total", metric::GENERATED_TOKENS),
    ("vllm:num_preemptions_total", metric::PREEMPTIONS),
    (
        "vllm:prefix_cache_queries_total",
        metric::PREFIX_CACHE_QUERIES,
    ),
    ("vllm:prefix_cache_hits_total", metric::PREFIX_CACHE_HITS),
    ("vllm:request_success_total", metric::REQUESTS_FINISHED),
    (
        "vllm:time_to_first_token_seconds",
        metric::TIME_TO_FIRST_TOKEN,
    ),
    (
        "vllm:inter_token_latency_seconds",
        metric::INTER_TOKEN_LATENCY,
    ),
    (
        "vllm:request_time_per_output_token_seconds",
        metric::TIME_PER_OUTPUT_TOKEN,
    ),
    ("vllm:e2e_request_latency_seconds", metric::REQUEST_DURATION),
    ("vllm:request_queue_time_seconds", metric::QUEUE_TIME),
    (
        "vllm:request_inference_time_seconds",
        metric::INFERENCE_TIME,
    ),
    ("vllm:request_prefill_time_seconds", metric::PREFILL_TIME),
    ("vllm:request_decode_time_seconds", metric::DECODE_TIME),
    ("vllm:request_prompt_tokens", metric::REQUEST_PROMPT_TOKENS),
    (
        "vllm:request_generation_tokens",
        metric::REQUEST_GENERATED_TOKENS,
    ),
    (
        "vllm:request_max_num_generation_tokens",
        metric::REQUEST_GENERATED_TOKENS,
    ),
    ("vllm:request_params_max_tokens", metric::REQUEST_MAX_TOKENS),
    ("vllm:iteration_tokens_total", metric::BATCH_TOKENS),
    ("vllm:spec_decode_num_drafts_total", metric::DRAFTS),
    (
        "vllm:spec_decode_num_draft_tokens_total",
        metric::DRAFT_TOKENS,
    ),
    (
        "vllm:spec_decode_num_accepted_tokens_total",
        metric::ACCEPTED_TOKENS,
    ),
];

/// Appends them, with its labels `model_name` and `engine`.
pub fn add(samples: &Samples<'_>, model: &str, more: &mut String) {
    for (alias, metric) in ALIASES {
        samples.alias(alias, metric, |own| labels(own, model), more);
    }
}

/// Appends the shape of the KV cache, which gateways read to weigh servers.
pub fn add_cache_config(model: &str, limits: &Limits, more: &mut String) {
    let blocks = limits.pool_tokens / limits.block_size.max(1);
    let size = limits.block_size;
    let shape = format!("block_size=\"{size}\",num_gpu_blocks=\"{blocks}\"");
    let help = "Shape of the KV cache of each device.";
    head("vllm:cache_config_info", Kind::Gauge, help, more);
    line("vllm:cache_config_info", &labels(&shape, model), 1.0, more);
}

/// `engine` is the device, or 0 for what is counted for all.
fn labels(own: &str, model: &str) -> String {
    let own = own
        .replace("device=\"", "engine=\"")
        .replace("outcome=\"", "finished_reason=\"");
    let mut all = label("model_name", model);
    if !own.contains("engine=\"") {
        all.push_str(",engine=\"0\"");
    }
    joined(&all, &own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_carry_the_same_samples() {
        let page = "# TYPE ropeteam_requests_running gauge\nropeteam_requests_running 3\n\n\
             ropeteam_kv_usage_ratio{device=\"1\"} 0.5\n\
             ropeteam_requests_finished_total{outcome=\"stop\"} 7\n\
             ropeteam_time_to_first_token_seconds_bucket{le=\"0.1\"} 2\n\
             ropeteam_time_to_first_token_seconds_sum 0.3\n\
             ropeteam_time_to_first_token_seconds_count 2\n";
        let mut more = String::new();
        add(&Samples::of(page), "a\"b", &mut more);
        for line in [
            "vllm:num_requests_running{model_name=\"a\\\"b\",engine=\"0\"} 3",
            "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\",engine=\"1\"} 0.5",
            "vllm:request_success_total{model_name=\"a\\\"b\",engine=\"0\",finished_reason=\"stop\"} 7",
            "# TYPE vllm:time_to_first_token_seconds histogram",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",engine=\"0\",le=\"0.1\"} 2",
            "vllm:time_to_first_token_seconds_count{model_name=\"a\\\"b\",engine=\"0\"} 2",
        ] {
            assert!(more.lines().any(|found| found == line), "{line} in\n{more}");
        }
        assert!(!more.contains("waiting"), "nothing is made up");
    }

    #[test]
    fn gateways_find_the_shape_of_the_cache() {
        let mut page = String::new();
        let limits = Limits {
            max_model_len: 512,
            pool_tokens: 640,
            block_size: 16,
            vocab: 100,
        };
        add_cache_config("m", &limits, &mut page);
        let line = "vllm:cache_config_info{model_name=\"m\",engine=\"0\",block_size=\"16\",num_gpu_blocks=\"40\"} 1";
        assert_eq!(page.lines().last(), Some(line));
    }
}
