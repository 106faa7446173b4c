//! Two runs side by side, as ratios. Pure.

use super::metric::{Better, Metric};
use std::fmt::Write;

/// Ratios closer to 1 than this are called the same: two runs of one server differ by as much.
const NOISE: f64 = 0.02;

/// A table of both runs with the ratio B / A of each figure. `a` and `b` hold figures as `metric::metrics` gives them.
pub fn table(a: &[Metric], b: &[Metric]) -> String {
    let mut text = format!("{:<20} {:>12} {:>12} {:>8}\n", "", "A", "B", "B / A");
    for a in a {
        let other = b.iter().find(|b| b.name == a.name);
        let Some((x, y)) = a.value.zip(other.and_then(|b| b.value)) else {
            continue;
        };
        let name = format!("{} {}", a.name, a.unit);
        // Writing to a String cannot fail.
        let _ = write!(text, "{name:<20} {x:>12.2} {y:>12.2} ");
        let _ = match x > 0.0 {
            true => writeln!(text, "{:>7.2}x  {}", y / x, verdict(y / x, a.better)),
            false => writeln!(text, "{:>8}", "-"),
        };
    }
    text
}

/// What a ratio says of B.
fn verdict(ratio: f64, better: Better) -> &'static str {
    if (ratio - 1.0).abs() < NOISE {
        return "same";
    }
    match (ratio > 1.0, better) {
        (true, Better::Higher) | (false, Better::Lower) => "better",
        _ => "worse",
    }
}

/// The median of each figure over several runs; a figure counts where a run tells it.
pub fn medians(runs: &[Vec<Metric>]) -> Vec<Metric> {
    let Some(first) = runs.first() else {
        return Vec::new();
    };
    let median = |metric: &Metric| {
        let same = runs
            .iter()
            .flatten()
            .filter(|other| other.name == metric.name);
        let mut values: Vec<_> = same.filter_map(|other| other.value).collect();
        values.sort_unstable_by(f64::total_cmp);
        Metric {
            value: (!values.is_empty()).then(|| super::summary::percentile(&values, 50.0)),
            ..metric.clone()
        }
    };
    first.iter().map(median).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, better: Better, value: f64) -> Metric {
        Metric {
            name: name.to_owned(),
            unit: "ms",
            better,
            value: Some(value),
        }
    }

    #[test]
    fn ratios_say_which_run_is_better() {
        use Better::{Higher, Lower};
        let run = |rate, time, same| {
            [
                metric("rate", Higher, rate),
                metric("time", Lower, time),
                metric("same", Lower, same),
            ]
        };
        let text = table(&run(100.0, 10.0, 5.0), &run(150.0, 20.0, 5.01));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].ends_with("1.50x  better"), "{text}");
        assert!(lines[2].ends_with("2.00x  worse"), "{text}");
        assert!(lines[3].ends_with("1.00x  same"), "{text}");
    }

    #[test]
    fn what_one_run_does_not_tell_is_left_out() {
        let a = [metric("only in A", Better::Lower, 1.0)];
        assert_eq!(table(&a, &[]).lines().count(), 1);
    }

    #[test]
    fn the_median_of_rounds_is_taken_by_figure() {
        let runs: Vec<_> = [3.0, 1.0, 2.0]
            .map(|x| vec![metric("x", Better::Lower, x)])
            .into();
        assert_eq!(medians(&runs)[0].value, Some(2.0));
        assert!(medians(&[]).is_empty());
    }
}
