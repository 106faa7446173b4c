//! The rendered page as samples, and samples as lines. Not here: which names they get (`vllm.rs`, `tgi.rs`, `mindie.rs`).

use ropeteam_engine::observe::metric::{Kind, Metric};
use std::collections::BTreeMap;
use std::fmt::Write;

/// One sample of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// What stands between the braces; empty without labels.
    pub labels: &'a str,
    /// Its value as it stands on the page.
    pub value: &'a str,
}

impl Sample<'_> {
    /// Its value as a number.
    pub fn number(&self) -> f64 {
        self.value.parse().unwrap_or(0.0)
    }

    /// Whether the label `name` has one of `values`.
    pub fn is(&self, name: &str, values: &[&str]) -> bool {
        let has = |value: &&str| self.labels.contains(&format!("{name}=\"{value}\""));
        values.iter().any(has)
    }
}

/// All samples of a page, by the names of their lines.
pub struct Samples<'a>(BTreeMap<&'a str, Vec<Sample<'a>>>);

impl<'a> Samples<'a> {
    /// Reads a page in Prometheus' text format, as our own recorder renders it.
    pub fn of(page: &'a str) -> Self {
        let mut samples: BTreeMap<&str, Vec<Sample<'_>>> = BTreeMap::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let labelled = rest
                .strip_prefix('{')
                .and_then(|inner| inner.split_once("} "));
            let (labels, value) = labelled.unwrap_or(("", rest.trim_start()));
            samples
                .entry(name)
                .or_default()
                .push(Sample { labels, value });
        }
        Samples(samples)
    }

    /// The samples of the line `name`.
    pub fn named(&self, name: &str) -> &[Sample<'a>] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum over all samples of `metric` that `wanted` says.
    pub fn sum(&self, metric: &Metric, wanted: impl Fn(&Sample<'_>) -> bool) -> f64 {
        let samples = self.named(metric.name).iter().filter(|s| wanted(s));
        // An empty sum of floats is -0, which would be written so.
        samples.map(Sample::number).fold(0.0, |sum, one| sum + one)
    }

    /// The mean of a histogram's values since the start; `None` when it has none.
    pub fn mean(&self, metric: &Metric) -> Option<f64> {
        let total = |suffix: &str| -> f64 {
            let samples = self.named(&format!("{}{suffix}", metric.name)).iter();
            samples.map(Sample::number).sum()
        };
        let count = total("_count");
        (count > 0.0).then(|| total("_sum") / count)
    }

    /// Appends every sample of `metric` under the name `alias`, with labels made by `label`. What has no sample has no line.
    pub fn alias(
        &self,
        alias: &str,
        metric: &Metric,
        label: impl Fn(&str) -> String,
        more: &mut String,
    ) {
        let suffixes: &[&str] = match metric.kind {
            Kind::Histogram => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let mut begun = false;
        for suffix in suffixes {
            for sample in self.named(&format!("{}{suffix}", metric.name)) {
                if !std::mem::replace(&mut begun, true) {
                    let help = format!("The same as {}.", metric.name);
                    head(alias, metric.kind, &help, more);
                }
                let labels = braced(&label(sample.labels));
                let _ = writeln!(more, "{alias}{suffix}{labels} {}", sample.value);
            }
        }
    }
}

/// Appends what a metric means.
pub fn head(name: &str, kind: Kind, help: &str, more: &mut String) {
    let word = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let _ = writeln!(more, "# HELP {name} {help}\n# TYPE {name} {word}");
}

/// Appends one sample.
pub fn line(name: &str, labels: &str, value: f64, more: &mut String) {
    let _ = writeln!(more, "{name}{} {value}", braced(labels));
}

/// `name="value"`, its value escaped.
pub fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// Two lists of labels as one.
pub fn joined(first: &str, second: &str) -> String {
    match (first, second) {
        ("", one) | (one, "") => one.to_owned(),
        (first, second) => format!("{first},{second}"),
    }
}

fn braced(labels: &str) -> String {
    match labels {
        "" => String::new(),
        labels => format!("{{{labels}}}"),
    }
}
