//! Curves out of records: distributions and throughput over time, thinned out to what a plot can show. Pure.

use crate::bench::record::Record;

/// Points of a curve at most: more than a plot has pixels across.
const POINTS: usize = 240;

/// The share of values at or below each value: points (value, share).
pub fn distribution(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let point = |index: usize| (values[index], (index + 1) as f64 / count as f64);
    if count <= POINTS {
        return (0..count).map(point).collect();
    }
    let spread = |step: usize| step * (count - 1) / (POINTS - 1);
    (0..POINTS).map(|step| point(spread(step))).collect()
}

/// Tokens per second over the run: points (seconds, tokens/s), one per equal stretch of time. An event counts when it came.
pub fn throughput(records: &[Record], wall_s: f64) -> Vec<(f64, f64)> {
    let bins = (wall_s.ceil() as usize).clamp(20, POINTS / 2);
    let width = wall_s / bins as f64;
    let mut tokens = vec![0.0; bins];
    let mut add = |at: f64, count: f64| {
        let bin = (at / width).max(0.0) as usize;
        tokens[bin.min(bins - 1)] += count;
    };
    for record in records.iter().filter(|_| width > 0.0) {
        let start = record.start.as_secs_f64();
        let Some(first) = record.first else {
            add(
                start + record.end.as_secs_f64(),
                f64::from(record.output_tokens()),
            );
            continue;
        };
        let each = f64::from(record.output_tokens()) / f64::from(record.events().max(1));
        let mut at = start + first.as_secs_f64();
        add(at, each);
        for gap in &record.gaps {
            at += f64::from(*gap) / 1e6;
            add(at, each);
        }
    }
    let rate = |(bin, tokens): (usize, f64)| ((bin as f64 + 0.5) * width, tokens / width.max(1e-9));
    tokens.into_iter().enumerate().map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_distribution_rises_to_one() {
        assert_eq!(distribution(vec![2.0, 1.0]), [(1.0, 0.5), (2.0, 1.0)]);
        assert!(distribution(Vec::new()).is_empty());
        let many = distribution((0..100_000).map(f64::from).collect());
        assert_eq!(many.len(), POINTS);
        assert_eq!(many.last(), Some(&(99_999.0, 1.0)));
        assert!(many.is_sorted());
    }

    #[test]
    fn all_tokens_are_in_the_throughput() {
        let record = Record {
            start: Duration::from_secs(1),
            first: Some(Duration::from_secs(1)),
            gaps: vec![500_000; 4],
            end: Duration::from_secs(3),
            ..Record::default()
        };
        let points = throughput(&[record.clone(), record], 4.0);
        let width = points[1].0 - points[0].0;
        let total: f64 = points.iter().map(|(_, rate)| rate * width).sum();
        assert!((total - 10.0).abs() < 1e-9, "{total}");
        assert!(
            points
                .iter()
                .filter(|(at, _)| *at < 2.0)
                .all(|(_, rate)| *rate == 0.0)
        );
    }
}
