//! `GET /metrics`: our own names, then the same samples under the names that other tools look for (vLLM's dashboards and routers, TGI's
//! queue gauge). The aliases are made from the rendered text, so nothing is counted twice. Not here: what is counted
//! (`ropeteam_engine::observe`).

use super::openai::error;
use super::refusal::{Kind, Refusal};
use super::state::AppState;
use actix_web::HttpResponse;
use actix_web::web::Data;
use ropeteam_actors::Limits;
use ropeteam_engine::observe::metric::{self, Kind as MetricKind, Metric};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Prometheus' text format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Other names for our metrics.
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
    ("tgi_queue_size", metric::REQUESTS_WAITING),
    ("tgi_batch_current_size", metric::BATCH_CURRENT_SIZE),
];

/// Answers `GET /metrics`.
pub async fn route(state: Data<AppState>) -> HttpResponse {
    let Some(handle) = &state.metrics else {
        return error::response(&Refusal::new(
            Kind::NotFound,
            "metrics are switched off (enable_metrics)",
        ));
    };
    let serving = state.serving.get();
    if let Some(serving) = serving {
        // Brings the recorder up to date, which is all that is wanted of it here.
        serving.engine.metrics().await;
    }
    handle.run_upkeep();
    let mut page = handle.render();
    let model = serving.map_or("", |serving| serving.model.name());
    add_aliases(&mut page, model);
    if let Some(limits) = serving.and_then(|serving| serving.engine.limits()) {
        add_cache_config(&mut page, model, &limits);
    }
    HttpResponse::Ok()
        .insert_header(("content-type", CONTENT_TYPE))
        .body(page)
}

/// Appends every sample of an aliased metric under its other names, with vLLM's labels `model_name` and `engine`.
fn add_aliases(page: &mut String, model: &str) {
    let mut samples: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        samples.entry(&line[..end]).or_default().push(&line[end..]);
    }
    let mut more = String::new();
    for (alias, metric) in ALIASES {
        let suffixes: &[&str] = match metric.kind {
            MetricKind::Histogram => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let mut header = false;
        for suffix in suffixes {
            for rest in samples
                .get(format!("{}{suffix}", metric.name).as_str())
                .into_iter()
                .flatten()
            {
                if !std::mem::replace(&mut header, true) {
                    let _ = writeln!(more, "# HELP {alias} The same as {}.", metric.name);
                    let _ = writeln!(more, "# TYPE {alias} {}", kind_word(metric.kind));
                }
                let _ = writeln!(more, "{alias}{suffix}{}", labelled(rest, model));
            }
        }
    }
    page.push_str(&more);
}

/// vLLM's name for the shape of the KV cache, which gateways read to weigh servers.
fn add_cache_config(page: &mut String, model: &str, limits: &Limits) {
    let blocks = limits.pool_tokens / limits.block_size.max(1);
    let size = limits.block_size;
    let sample = format!("{{block_size=\"{size}\",num_gpu_blocks=\"{blocks}\"}} 1");
    page.push_str("# HELP vllm:cache_config_info Shape of the KV cache of each device.\n");
    page.push_str("# TYPE vllm:cache_config_info gauge\n");
    let _ = writeln!(page, "vllm:cache_config_info{}", labelled(&sample, model));
}

fn kind_word(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

/// `rest` is `{labels} value` or ` value`. `engine` is the device, or 0 for what is counted for all.
fn labelled(rest: &str, model: &str) -> String {
    let own = rest
        .strip_prefix('{')
        .and_then(|inner| inner.split_once("} "));
    let (labels, value) = own.unwrap_or(("", rest.trim_start()));
    let labels = labels
        .replace("device=\"", "engine=\"")
        .replace("outcome=\"", "finished_reason=\"");
    let mut all = format!("model_name=\"{}\"", escaped(model));
    if !labels.contains("engine=\"") {
        all.push_str(",engine=\"0\"");
    }
    if !labels.is_empty() {
        all.push(',');
        all.push_str(&labels);
    }
    format!("{{{all}}} {value}")
}

fn escaped(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_carry_the_same_samples() {
        let mut page = String::from(
            "# TYPE ropeteam_requests_running gauge\nropeteam_requests_running 3\n\n\
             ropeteam_kv_usage_ratio{device=\"1\"} 0.5\n\
             ropeteam_requests_finished_total{outcome=\"stop\"} 7\n\
             ropeteam_time_to_first_token_seconds_bucket{le=\"0.1\"} 2\n\
             ropeteam_time_to_first_token_seconds_sum 0.3\n\
             ropeteam_time_to_first_token_seconds_count 2\n",
        );
        add_aliases(&mut page, "a\"b");
        for line in [
            "vllm:num_requests_running{model_name=\"a\\\"b\",engine=\"0\"} 3",
            "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\",engine=\"1\"} 0.5",
            "vllm:request_success_total{model_name=\"a\\\"b\",engine=\"0\",finished_reason=\"stop\"} 7",
            "# TYPE vllm:time_to_first_token_seconds histogram",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",engine=\"0\",le=\"0.1\"} 2",
            "vllm:time_to_first_token_seconds_count{model_name=\"a\\\"b\",engine=\"0\"} 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(!page.contains("tgi_queue_size"), "nothing is made up");
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
        add_cache_config(&mut page, "m", &limits);
        let line = "vllm:cache_config_info{model_name=\"m\",engine=\"0\",block_size=\"16\",num_gpu_blocks=\"40\"} 1";
        assert_eq!(page.lines().last(), Some(line));
    }

    #[test]
    fn some_name_holds_batch() {
        assert!(
            metric::ALL
                .iter()
                .any(|metric| metric.name.contains("batch"))
        );
    }
}
