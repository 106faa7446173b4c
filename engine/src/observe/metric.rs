//! Every metric of the server: name, kind, unit and meaning, in one place. The names that other servers use for the same
//! values (`vllm:`, `tgi_`, MindIE's) are mapped from these in the server crate.

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Distribution of observed values.
    Histogram,
}

/// Unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number of things.
    Count,
    /// Seconds.
    Seconds,
    /// 0 to 1.
    Ratio,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Sample name; a counter's ends in `_total`.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// Unit of its values.
    pub unit: Unit,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, one line.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident, $unit:ident, [$($label:literal),*], $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                unit: Unit::$unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        /// All of them, in the order of this file.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    REQUESTS_RECEIVED = "ropeteam_requests_received_total", Counter, Count, [],
        "Requests that reached the engine, refused ones included.";
    REQUESTS_FINISHED = "ropeteam_requests_finished_total", Counter, Count, ["outcome"],
        "Requests that ended after they were admitted, by outcome (stop, length, cancelled, timeout, device_error).";
    REQUESTS_REFUSED = "ropeteam_requests_refused_total", Counter, Count, ["reason"],
        "Requests that were refused, by reason (queue_full, too_long, too_busy, queue_timeout, invalid, draining, no_device).";
    REQUESTS_CANCELLED = "ropeteam_requests_cancelled_total", Counter, Count, [],
        "Requests whose client left or that a management call ended.";
    REQUESTS_CANCELLED_IN = "ropeteam_requests_cancelled_by_stage_total", Counter, Count, ["stage"],
        "The same, by where the request was (queue, prefill, decode).";
    REQUESTS_REPLAYED = "ropeteam_requests_replayed_total", Counter, Count, [],
        "Sequences that went on after the loss of their device.";
    REQUESTS_RUNNING = "ropeteam_requests_running", Gauge, Count, [],
        "Sequences on devices.";
    REQUESTS_WAITING = "ropeteam_requests_waiting", Gauge, Count, [],
        "Sequences in the waiting queue.";
    REQUESTS_PER_SECOND = "ropeteam_requests_per_second", Gauge, Count, [],
        "Requests that ended per second, over the last ten seconds.";
    GENERATED_TOKENS_PER_SECOND = "ropeteam_generated_tokens_per_second", Gauge, Count, [],
        "Generated tokens per second, over the last ten seconds.";
    PROMPT_TOKENS_PER_SECOND = "ropeteam_prompt_tokens_per_second", Gauge, Count, [],
        "Prompt tokens computed per second, over the last ten seconds.";
    FAILED_REQUESTS_RATIO = "ropeteam_failed_requests_ratio", Gauge, Ratio, [],
        "Share of the requests of the last ten seconds that ended with timeout or device_error.";
    PROMPT_TOKENS = "ropeteam_prompt_tokens_total", Counter, Count, [],
        "Prompt tokens of admitted requests, cached ones included, counted once per request.";
    GENERATED_TOKENS = "ropeteam_generated_tokens_total", Counter, Count, [],
        "Generated tokens.";
    TIME_TO_FIRST_TOKEN = "ropeteam_time_to_first_token_seconds", Histogram, Seconds, [],
        "From a request's arrival to its first token.";
    TIME_PER_OUTPUT_TOKEN = "ropeteam_time_per_output_token_seconds", Histogram, Seconds, [],
        "Mean time between the tokens of a request after the first, one value per request.";
    INTER_TOKEN_LATENCY = "ropeteam_inter_token_latency_seconds", Histogram, Seconds, [],
        "Time between two tokens of a sequence, taken per decode step of a device.";
    REQUEST_DURATION = "ropeteam_request_duration_seconds", Histogram, Seconds, [],
        "From a request's arrival to its end.";
    QUEUE_TIME = "ropeteam_queue_time_seconds", Histogram, Seconds, [],
        "From a request's arrival to the first step for it.";
    PREFILL_TIME = "ropeteam_prefill_time_seconds", Histogram, Seconds, [],
        "From the first step for a request to its first token.";
    DECODE_TIME = "ropeteam_decode_time_seconds", Histogram, Seconds, [],
        "From a request's first token to its last.";
    INFERENCE_TIME = "ropeteam_inference_time_seconds", Histogram, Seconds, [],
        "From the first step for a request to its last token.";
    REQUEST_PROMPT_TOKENS = "ropeteam_request_prompt_tokens", Histogram, Count, [],
        "Prompt tokens of a request.";
    REQUEST_GENERATED_TOKENS = "ropeteam_request_generated_tokens", Histogram, Count, [],
        "Generated tokens of a request, all choices together.";
    REQUEST_MAX_TOKENS = "ropeteam_request_max_tokens", Histogram, Count, [],
        "Most tokens a request asked for, per choice.";
    BATCH_SIZE = "ropeteam_batch_size", Histogram, Count, ["device"],
        "Sequences in a step.";
    BATCH_TOKENS = "ropeteam_batch_tokens", Histogram, Count, ["device"],
        "Tokens computed in a step.";
    BATCH_CURRENT_SIZE = "ropeteam_batch_current_size", Gauge, Count, ["device"],
        "Sequences in the last step; 0 when the device is idle.";
    STEP_TOKENS = "ropeteam_step_tokens_total", Counter, Count, ["device", "kind"],
        "Tokens computed, by kind (prefill, decode); cached ones are not computed.";
    STEP_DURATION = "ropeteam_step_duration_seconds", Histogram, Seconds, ["device", "kind"],
        "Time of a step in the executor, by kind (prefill if it holds any prefill, else decode).";
    STEP_ENGINE_DURATION = "ropeteam_step_engine_duration_seconds", Histogram, Seconds, ["device"],
        "Time round a step for planning it and choosing its tokens.";
    STEP_HOST_DURATION = "ropeteam_step_host_duration_seconds", Histogram, Seconds, ["device", "kind"],
        "Time of a step that the host was at work in the executor, waiting left out; where another chip computes.";
    STEP_LAUNCHES = "ropeteam_step_launches", Gauge, Count, ["device", "kind"],
        "Operators and graphs that the host launched for the last step; where another chip computes.";
    PREEMPTIONS = "ropeteam_preemptions_total", Counter, Count, ["device"],
        "Sequences that lost their blocks and were computed again.";
    KV_BLOCKS_FREE = "ropeteam_kv_blocks_free", Gauge, Count, ["device"],
        "Blocks that no sequence holds; those that the prefix cache keeps are among them.";
    KV_BLOCKS_CACHED = "ropeteam_kv_blocks_cached", Gauge, Count, ["device"],
        "Blocks that no sequence holds and that the prefix cache keeps.";
    KV_BLOCKS = "ropeteam_kv_blocks", Gauge, Count, ["device"],
        "Blocks in the pool.";
    KV_BLOCK_SIZE = "ropeteam_kv_block_size_tokens", Gauge, Count, ["device"],
        "Tokens per block.";
    KV_USAGE = "ropeteam_kv_usage_ratio", Gauge, Ratio, ["device"],
        "Share of the pool that sequences hold.";
    PREFIX_CACHE_HITS = "ropeteam_prefix_cache_hits_total", Counter, Count, ["device"],
        "Prompt tokens found in the prefix cache.";
    PREFIX_CACHE_QUERIES = "ropeteam_prefix_cache_queries_total", Counter, Count, ["device"],
        "Prompt tokens looked up in the prefix cache.";
    DRAFTS = "ropeteam_drafts_total", Counter, Count, ["device"],
        "Guesses at what a sequence goes on with, each of one or more tokens.";
    DRAFT_TOKENS = "ropeteam_draft_tokens_total", Counter, Count, ["device"],
        "Guessed tokens that were computed.";
    ACCEPTED_TOKENS = "ropeteam_accepted_tokens_total", Counter, Count, ["device"],
        "Guessed tokens that were right.";
    DEVICE_UP = "ropeteam_device_up", Gauge, Count, ["device"],
        "1 while the device takes work, else 0.";
    DEVICE_EPOCH = "ropeteam_device_epoch", Gauge, Count, ["device"],
        "The how-many-eth life of the device it is.";
    DEVICE_RESTARTS = "ropeteam_device_restarts_total", Counter, Count, ["device", "cause"],
        "Restarts of a device, by cause (start, operator, panic, stuck, requested).";
    START_TIME = "ropeteam_start_time_seconds", Gauge, Seconds, [],
        "When the process started, seconds since 1970.";
    BUILD_INFO = "ropeteam_build_info", Gauge, Count, ["version", "model"],
        "Always 1; the labels say what runs.";
    GRAMMAR_COMPILE = "ropeteam_grammar_compile_seconds", Histogram, Seconds, [],
        "Time to compile a grammar that a request asked for and that was not known.";
    GRAMMAR_CACHE_HITS = "ropeteam_grammar_cache_hits_total", Counter, Count, [],
        "Grammars that were asked for and known.";
    GRAMMAR_FAILURES = "ropeteam_grammar_failures_total", Counter, Count, ["reason"],
        "Grammars that were asked for and could not be compiled: invalid, too_large, timeout, busy, model.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_say_kind_and_unit_as_prometheus_wants_it() {
        let names: HashSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            let name = metric.name;
            assert!(name.starts_with("ropeteam_"), "{name}");
            assert_eq!(
                name.ends_with("_total"),
                metric.kind == Kind::Counter,
                "{name}"
            );
            assert_eq!(
                name.ends_with("_seconds"),
                metric.unit == Unit::Seconds,
                "{name}"
            );
            assert_eq!(
                name.ends_with("_ratio"),
                metric.unit == Unit::Ratio,
                "{name}"
            );
        }
        assert!(names.iter().any(|name| name.contains("batch")));
    }
}
