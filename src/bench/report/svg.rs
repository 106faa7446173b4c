//! Line plots as SVG, drawn with the colours of the page they stand in. Pure.

use std::fmt::Write;

/// Of a plot that shares its line with another, and of one that has the line to itself.
const WIDTH: f64 = 560.0;
const FULL_WIDTH: f64 = 1140.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;

/// How values are laid along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Linear { low: f64, high: f64 },
    Log { low: f64, high: f64 },
}

impl Scale {
    /// Up to `high` from zero.
    fn from_zero(high: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        Scale::Linear { low: 0.0, high }
    }

    /// For these sorted values: logarithmic where a few are far beyond the most.
    fn of_latencies(values: &[f64]) -> Self {
        let (Some(&low), Some(&high)) = (values.first(), values.last()) else {
            return Scale::from_zero(1.0);
        };
        let middle = values[values.len() / 2];
        if low > 0.0 && high > 8.0 * middle {
            return Scale::Log {
                low,
                high: high.max(low * 1.01),
            };
        }
        Scale::from_zero(high * 1.02)
    }

    /// Where a value lies, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        let (part, whole) = match self {
            Scale::Linear { low, high } => (value - low, high - low),
            Scale::Log { low, high } => ((value.max(low) / low).ln(), (high / low).ln()),
        };
        (part / whole).clamp(0.0, 1.0)
    }

    /// Round values to write at the axis.
    fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear { low, high } => {
                let step = round_step((high - low) / 5.0);
                let first = (low / step).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|tick| tick as f64 * step).collect()
            }
            Scale::Log { low, high } => {
                let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
                let all = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)));
                let all: Vec<_> = all.filter(|tick| (low..=high).contains(tick)).collect();
                let every = all.len().div_ceil(8).max(1);
                all.into_iter().step_by(every).collect()
            }
        }
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= rough * 0.999);
    step.unwrap_or(10.0) * power
}

/// A number with as many digits as it needs at an axis.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value == value.round() => format!("{value:.0}"),
        size if size >= 1.0 => trimmed(format!("{value:.1}")),
        size if size >= 0.01 => trimmed(format!("{value:.3}")),
        _ => format!("{value:.1e}"),
    }
}

fn trimmed(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The axes of a plot and how wide it is.
#[derive(Clone, Copy)]
struct Axes {
    width: f64,
    x: Scale,
    y: Scale,
}

impl Axes {
    fn across(self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (self.width - LEFT - RIGHT)
    }

    fn up(self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - TOP - BOTTOM)
    }
}

/// A distribution of latencies in ms: points (value, share) in order, with lines at the shares of `marks` (name, value).
pub fn distribution(points: &[(f64, f64)], marks: &[(&str, f64)]) -> String {
    let values: Vec<_> = points.iter().map(|point| point.0).collect();
    let axes = Axes {
        width: WIDTH,
        x: Scale::of_latencies(&values),
        y: Scale::from_zero(1.0),
    };
    let mut svg = frame("distribution", axes, "ms", |share| {
        format!("{:.0}%", share * 100.0)
    });
    for (index, (name, value)) in marks.iter().enumerate() {
        let at = axes.across(*value);
        // Below the curve, where nothing else is drawn, one below the other.
        let height = HEIGHT - BOTTOM - 8.0 - 14.0 * (marks.len() - 1 - index) as f64;
        let (anchor, beside) = if at > WIDTH * 0.8 {
            ("end", -5.0)
        } else {
            ("start", 5.0)
        };
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            r#"<line class="mark" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{:.1}"/><text class="tick" text-anchor="{anchor}" x="{:.1}" y="{height:.1}">{name} {}</text>"#,
            HEIGHT - BOTTOM,
            at + beside,
            number(*value)
        );
    }
    // Between two values the share does not grow: steps, not slopes.
    let mut path = String::new();
    let mut share = 0.0;
    for (value, reached) in points {
        let (at, from, to) = (axes.across(*value), axes.up(share), axes.up(*reached));
        let command = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{at:.1} {from:.1}L{at:.1} {to:.1}");
        share = *reached;
    }
    let _ = write!(svg, r#"<path class="line" d="{path}"/></svg>"#);
    svg
}

/// A rate over time: points (seconds, rate) in order.
pub fn over_time(points: &[(f64, f64)]) -> String {
    let (first, last) = (
        points.first().map_or(0.0, |p| p.0),
        points.last().map_or(1.0, |p| p.0),
    );
    let high = points
        .iter()
        .fold(0.0, |high: f64, point| high.max(point.1));
    let axes = Axes {
        width: FULL_WIDTH,
        x: Scale::from_zero(last),
        y: Scale::from_zero(high * 1.05),
    };
    let mut svg = frame("throughput", axes, "s", number);
    let mut path = String::new();
    for (at, rate) in points {
        let command = if path.is_empty() { 'M' } else { 'L' };
        // Writing to a String cannot fail.
        let _ = write!(
            path,
            "{command}{:.1} {:.1}",
            axes.across(*at),
            axes.up(*rate)
        );
    }
    let (base, from, to) = (HEIGHT - BOTTOM, axes.across(first), axes.across(last));
    if !path.is_empty() {
        let _ = write!(
            svg,
            r#"<path class="area" d="{path}L{to:.1} {base}L{from:.1} {base}Z"/>"#
        );
    }
    let _ = write!(svg, r#"<path class="line" d="{path}"/></svg>"#);
    svg
}

/// Opens a plot and draws its axes.
fn frame(label: &str, axes: Axes, unit: &str, show: fn(f64) -> String) -> String {
    let (width, base, end) = (axes.width, HEIGHT - BOTTOM, axes.width - RIGHT);
    let mut svg =
        format!(r#"<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{label}">"#);
    for tick in axes.y.ticks() {
        let at = axes.up(tick);
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{LEFT}" x2="{end:.1}" y1="{at:.1}" y2="{at:.1}"/><text class="tick" text-anchor="end" x="{:.1}" y="{:.1}">{}</text>"#,
            LEFT - 8.0,
            at + 4.0,
            show(tick)
        );
    }
    for tick in axes.x.ticks() {
        let at = axes.across(tick);
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{base}" y2="{:.1}"/><text class="tick" text-anchor="middle" x="{at:.1}" y="{:.1}">{}</text>"#,
            base + 4.0,
            base + 18.0,
            number(tick)
        );
    }
    let _ = write!(
        svg,
        r#"<line class="axis" x1="{LEFT}" x2="{end:.1}" y1="{base}" y2="{base}"/><text class="tick" text-anchor="end" x="{end:.1}" y="{:.1}">{unit}</text>"#,
        HEIGHT - 4.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(
            Scale::from_zero(10.0).ticks(),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(Scale::from_zero(0.0).ticks().first(), Some(&0.0));
        let log = Scale::Log {
            low: 0.7,
            high: 130.0,
        };
        assert!(log.ticks().iter().all(|tick| (0.7..=130.0).contains(tick)));
        assert!(log.ticks().contains(&1.0));
    }

    #[test]
    fn a_long_tail_makes_the_axis_logarithmic() {
        let linear = Scale::of_latencies(&[1.0, 2.0, 3.0]);
        assert!(matches!(linear, Scale::Linear { .. }));
        assert!(matches!(
            Scale::of_latencies(&[1.0, 1.0, 90.0]),
            Scale::Log { .. }
        ));
        assert!(matches!(
            Scale::of_latencies(&[0.0, 0.0, 90.0]),
            Scale::Linear { .. }
        ));
    }

    #[test]
    fn numbers_have_the_digits_that_they_need() {
        for (value, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (2.5, "2.5"),
            (1234.6, "1235"),
            (0.125, "0.125"),
            (0.05, "0.05"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn plots_of_nothing_and_of_one_point_are_well_formed() {
        for svg in [
            distribution(&[], &[]),
            over_time(&[]),
            distribution(&[(5.0, 1.0)], &[("p50", 5.0)]),
        ] {
            assert!(
                svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("NaN"),
                "{svg}"
            );
        }
    }
}
