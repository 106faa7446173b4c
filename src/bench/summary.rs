//! From records to figures: latencies as mean, percentiles and maximum, throughputs, errors by kind. Pure.

use super::load::Run;
use super::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A distribution, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// Ninety-nine of a hundred are below.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these values, in any order; `None` of none.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_unstable_by(f64::total_cmp);
        let max = *values.last()?;
        Some(Spread {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            p50: percentile(&values, 50.0),
            p90: percentile(&values, 90.0),
            p99: percentile(&values, 99.0),
            max,
        })
    }
}

/// The percentile of sorted values, linear between neighbours; 0 of none.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let place = sorted.len().saturating_sub(1) as f64 * percent / 100.0;
    let (low, part) = (place.floor() as usize, place.fract());
    let Some(at) = sorted.get(low) else {
        return 0.0;
    };
    let next = sorted.get(low + 1).unwrap_or(at);
    at + (next - at) * part
}

/// Failures of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// How many.
    pub count: u64,
    /// What the first of them said.
    pub example: String,
}

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Requests that ended.
    pub requests: u64,
    /// Those with a whole answer. All figures but these and the errors are of these only.
    pub succeeded: u64,
    /// From the first sending to the last end.
    pub wall_s: f64,
    /// Succeeded per second.
    pub requests_per_s: f64,
    /// Tokens of answers per second.
    pub output_tokens_per_s: f64,
    /// Tokens of prompts and answers per second; `None` where those of prompts are not known.
    pub total_tokens_per_s: Option<f64>,
    /// Time to the first event with a token.
    pub ttft_ms: Option<Spread>,
    /// Time per output token after the first, per request.
    pub tpot_ms: Option<Spread>,
    /// Time between events with tokens, of all requests together.
    pub itl_ms: Option<Spread>,
    /// Time to the end of the answer.
    pub e2e_ms: Option<Spread>,
    /// Tokens of prompts by the server's count, or else our own; `None` where a prompt was counted by nobody.
    pub prompt_tokens: Option<u64>,
    /// Tokens of answers, as the server counted them.
    pub output_tokens: u64,
    /// Tokens of prompts that the server found in its cache.
    pub cached_tokens: u64,
    /// Events with tokens; fewer than tokens when a server puts several into one.
    pub events: u64,
    /// Tokens of prompts by our own tokenizer, if it counted them all.
    pub prompt_tokens_counted: Option<u64>,
    /// Tokens of answers by our own tokenizer, if it counted them all.
    pub output_tokens_counted: Option<u64>,
    /// Requests whose answer came without the server's count.
    pub without_usage: u64,
    /// Requests whose answer is shorter or longer than asked for.
    pub other_length: u64,
    /// Failures by kind.
    pub errors: BTreeMap<String, Errors>,
    /// Whether the run was stopped before all requests had ended.
    pub stopped: bool,
}

impl Summary {
    /// Works out the figures.
    pub fn of(run: &Run) -> Summary {
        let good: Vec<_> = run.records.iter().filter(|r| r.failure.is_none()).collect();
        let sum = |count: fn(&Record) -> u32| good.iter().map(|r| u64::from(count(r))).sum();
        let all = |count: fn(&Record) -> Option<u32>| -> Option<u64> {
            good.iter().map(|r| count(r).map(u64::from)).sum()
        };
        let prompt_tokens = all(Record::prompt_tokens);
        let output_tokens: u64 = sum(Record::output_tokens);
        let wall_s = run.wall.as_secs_f64();
        let per_second = |count: u64| {
            if wall_s > 0.0 {
                count as f64 / wall_s
            } else {
                0.0
            }
        };
        let spread = |ms: &dyn Fn(&Record) -> Option<f64>| {
            Spread::of(good.iter().filter_map(|record| ms(record)).collect())
        };
        let gaps = good
            .iter()
            .flat_map(|r| &r.gaps)
            .map(|gap| f64::from(*gap) / 1e3);
        Summary {
            requests: run.records.len() as u64,
            succeeded: good.len() as u64,
            wall_s,
            requests_per_s: per_second(good.len() as u64),
            output_tokens_per_s: per_second(output_tokens),
            total_tokens_per_s: prompt_tokens.map(|prompt| per_second(prompt + output_tokens)),
            ttft_ms: spread(&|r| Some(r.first?.as_secs_f64() * 1e3)),
            tpot_ms: spread(&|r| Some(r.time_per_token()? * 1e3)),
            itl_ms: Spread::of(gaps.collect()),
            e2e_ms: spread(&|r| Some(r.end.as_secs_f64() * 1e3)),
            prompt_tokens,
            output_tokens,
            cached_tokens: sum(|r| r.usage.map_or(0, |usage| usage.cached)),
            events: sum(Record::events),
            prompt_tokens_counted: all(|r| r.prompt_counted),
            output_tokens_counted: all(|r| r.output_counted),
            without_usage: good.iter().filter(|r| r.usage.is_none()).count() as u64,
            other_length: good.iter().filter(|r| r.output_tokens() != r.asked).count() as u64,
            errors: errors(&run.records),
            stopped: run.stopped,
        }
    }
}

fn errors(records: &[Record]) -> BTreeMap<String, Errors> {
    let mut found: BTreeMap<String, Errors> = BTreeMap::new();
    for failure in records.iter().filter_map(|record| record.failure.as_ref()) {
        let example = || Errors {
            count: 0,
            example: failure.detail().to_owned(),
        };
        found.entry(failure.kind()).or_insert_with(example).count += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::{Failure, Usage};
    use std::time::Duration;

    fn answer(first_ms: u64, gaps_ms: &[u32]) -> Record {
        let span: u32 = gaps_ms.iter().sum();
        Record {
            first: Some(Duration::from_millis(first_ms)),
            end: Duration::from_millis(first_ms + u64::from(span)),
            gaps: gaps_ms.iter().map(|gap| gap * 1000).collect(),
            usage: Some(Usage {
                prompt: Some(10),
                output: gaps_ms.len() as u32 + 1,
                cached: 2,
            }),
            asked: gaps_ms.len() as u32 + 1,
            ..Record::default()
        }
    }

    #[test]
    fn percentiles_are_linear_between_neighbours() {
        let values = [10.0, 20.0, 30.0, 40.0, 50.0];
        assert_eq!(percentile(&values, 50.0), 30.0);
        assert_eq!(percentile(&values, 90.0), 46.0);
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert_eq!(percentile(&[], 99.0), 0.0);
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.mean, spread.p50, spread.max), (2.0, 2.0, 3.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn only_whole_answers_count_in_the_figures() {
        let bad = Record {
            failure: Some(Failure::Status(429, "busy".into())),
            ..answer(9000, &[5000])
        };
        let run = Run {
            records: vec![answer(100, &[10, 20]), bad.clone(), answer(300, &[30]), bad],
            wall: Duration::from_secs(2),
            stopped: false,
        };
        let summary = Summary::of(&run);
        assert_eq!((summary.requests, summary.succeeded), (4, 2));
        assert_eq!(
            (summary.prompt_tokens, summary.output_tokens),
            (Some(20), 5)
        );
        assert_eq!(summary.output_tokens_per_s, 2.5);
        assert_eq!(summary.total_tokens_per_s, Some(12.5));
        assert_eq!(summary.ttft_ms.unwrap().mean, 200.0);
        assert_eq!(summary.itl_ms.unwrap().mean, 20.0);
        assert_eq!(summary.tpot_ms.unwrap().max, 30.0);
        assert_eq!(summary.errors["HTTP 429"].count, 2);
        assert_eq!(summary.errors["HTTP 429"].example, "busy");
        assert_eq!((summary.cached_tokens, summary.events), (4, 5));
        assert_eq!(summary.prompt_tokens_counted, None);
    }

    #[test]
    fn prompts_that_nobody_counted_are_no_zeros() {
        let mut uncounted = answer(100, &[10]);
        uncounted.usage = Some(Usage {
            output: 2,
            ..Usage::default()
        });
        let run = Run {
            records: vec![answer(100, &[10]), uncounted],
            wall: Duration::from_secs(1),
            stopped: false,
        };
        let summary = Summary::of(&run);
        assert_eq!(
            (summary.prompt_tokens, summary.total_tokens_per_s),
            (None, None)
        );
        assert_eq!(summary.output_tokens_per_s, 4.0);
    }

    #[test]
    fn a_run_without_answers_has_no_latencies() {
        let summary = Summary::of(&Run::default());
        assert_eq!((summary.ttft_ms, summary.requests_per_s), (None, 0.0));
    }
}
