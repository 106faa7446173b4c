//! TGI's names. Not among them is `tgi_request_validation_duration`: it is not measured here.

use super::samples::{Samples, head, line};
use ropeteam_engine::observe::metric::{self, Kind, Metric};

/// Its names for our metrics.
const ALIASES: &[(&str, Metric)] = &[
    ("tgi_queue_size", metric::REQUESTS_WAITING),
    ("tgi_batch_current_size", metric::BATCH_CURRENT_SIZE),
    ("tgi_batch_next_size", metric::BATCH_SIZE),
    ("tgi_batch_inference_duration", metric::STEP_DURATION),
    ("tgi_request_count", metric::REQUESTS_RECEIVED),
    ("tgi_request_duration", metric::REQUEST_DURATION),
    ("tgi_request_queue_duration", metric::QUEUE_TIME),
    ("tgi_request_inference_duration", metric::INFERENCE_TIME),
    (
        "tgi_request_mean_time_per_token_duration",
        metric::TIME_PER_OUTPUT_TOKEN,
    ),
    (
        "tgi_request_generated_tokens",
        metric::REQUEST_GENERATED_TOKENS,
    ),
    ("tgi_request_input_length", metric::REQUEST_PROMPT_TOKENS),
    ("tgi_request_max_new_tokens", metric::REQUEST_MAX_TOKENS),
];

/// Why requests fail, in its words: each with our reasons for a refusal and our outcomes.
const FAILURES: &[(&str, &[&str], &[&str])] = &[
    (
        "overloaded",
        &["queue_full", "queue_timeout", "draining", "no_device"],
        &[],
    ),
    ("validation", &["too_long", "invalid"], &[]),
    ("dropped", &[], &["cancelled"]),
    ("generation", &[], &["timeout", "device_error"]),
];

/// Appends them.
pub fn add(samples: &Samples<'_>, more: &mut String) {
    for (alias, metric) in ALIASES {
        let labels = |own: &str| own.replace("kind=\"", "method=\"");
        samples.alias(alias, metric, labels, more);
    }
    add_steps(samples, more);
    add_ends(samples, more);
}

/// How many steps there were of each kind.
fn add_steps(samples: &Samples<'_>, more: &mut String) {
    let steps = samples.named("ropeteam_step_duration_seconds_count");
    if steps.is_empty() {
        return;
    }
    let name = "tgi_batch_inference_count";
    head(name, Kind::Counter, "Steps, by kind.", more);
    for step in steps {
        let labels = step.labels.replace("kind=\"", "method=\"");
        line(name, &labels, step.number(), more);
    }
}

fn add_ends(samples: &Samples<'_>, more: &mut String) {
    let name = "tgi_request_success";
    head(
        name,
        Kind::Counter,
        "Requests that came to their end.",
        more,
    );
    let good = samples.sum(&metric::REQUESTS_FINISHED, |sample| {
        sample.is("outcome", &["stop", "length"])
    });
    line(name, "", good, more);
    let name = "tgi_request_failure";
    head(name, Kind::Counter, "Requests that failed, by cause.", more);
    for (word, reasons, outcomes) in FAILURES {
        let refused = samples.sum(&metric::REQUESTS_REFUSED, |s| s.is("reason", reasons));
        let failed = samples.sum(&metric::REQUESTS_FINISHED, |s| s.is("outcome", outcomes));
        line(name, &format!("err=\"{word}\""), refused + failed, more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_sorted_by_its_words() {
        let page = "ropeteam_requests_finished_total{outcome=\"stop\"} 7\n\
             ropeteam_requests_finished_total{outcome=\"length\"} 2\n\
             ropeteam_requests_finished_total{outcome=\"device_error\"} 1\n\
             ropeteam_requests_refused_total{reason=\"queue_full\"} 3\n\
             ropeteam_step_duration_seconds_count{device=\"0\",kind=\"decode\"} 5\n\
             ropeteam_step_duration_seconds_sum{device=\"0\",kind=\"decode\"} 0.5\n\
             ropeteam_requests_waiting 4\n";
        let mut more = String::new();
        add(&Samples::of(page), &mut more);
        for line in [
            "tgi_queue_size 4",
            "tgi_request_success 9",
            "tgi_request_failure{err=\"overloaded\"} 3",
            "tgi_request_failure{err=\"validation\"} 0",
            "tgi_request_failure{err=\"generation\"} 1",
            "tgi_batch_inference_duration_sum{device=\"0\",method=\"decode\"} 0.5",
            "tgi_batch_inference_count{device=\"0\",method=\"decode\"} 5",
        ] {
            assert!(more.lines().any(|found| found == line), "{line} in\n{more}");
        }
    }
}
