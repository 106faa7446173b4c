//! A result as one page that needs nothing else: plots as inline SVG, the tables, and the configuration. The page itself is `page.html`.

use super::{Report, cdf, prompt_tokens, svg};
use crate::bench::load::Run;
use crate::bench::metric::{latencies, parts};
use crate::bench::record::Record;
use crate::bench::summary::Spread;
use std::fmt::Write;

const PAGE: &str = include_str!("page.html");

/// The whole page.
pub fn page(report: &Report, run: &Run) -> String {
    let good = run.records.iter().filter(|record| record.failure.is_none());
    let good: Vec<_> = good.cloned().collect();
    let server = serde_json::to_string_pretty(&report.server).unwrap_or_default();
    let throughput = cdf::throughput(&good, report.summary.wall_s);
    let parts = [
        ("title", escaped(&format!("{} under load", report.model))),
        ("lead", escaped(&lead(report))),
        ("tiles", tiles(report)),
        ("warnings", warnings(report)),
        ("throughput", svg::over_time(&throughput)),
        ("plots", plots(report, &good)),
        ("latencies", latency_table(report)),
        ("facts", facts(report)),
        ("server", escaped(&server)),
    ];
    filled(&parts)
}

/// The page with its places filled, in one pass: what is put in is not looked through again.
fn filled(parts: &[(&str, String)]) -> String {
    let mut pieces = PAGE.split("{{");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or(("", piece));
        let part = parts.iter().find(|(known, _)| *known == name);
        out.push_str(part.map_or("", |(_, text)| text));
        out.push_str(rest);
    }
    out
}

fn lead(report: &Report) -> String {
    let streamed = if report.streamed {
        "streamed"
    } else {
        "whole answers"
    };
    let setting = |name: &str| {
        let found = report.settings.iter().find(|(known, _)| known == name);
        found.map(|(name, value)| format!("{name} {value}"))
    };
    let names = [
        "dataset",
        "input length",
        "output length",
        "concurrency",
        "request rate",
    ];
    let known: Vec<_> = names.into_iter().filter_map(setting).collect();
    format!(
        "{} ({}, {streamed}): {}",
        report.url,
        report.api,
        known.join(", ")
    )
}

fn tiles(report: &Report) -> String {
    let summary = &report.summary;
    let p50_p99 = |spread: Option<Spread>| match spread {
        Some(spread) => format!("{} / {}", svg::number(spread.p50), svg::number(spread.p99)),
        None => "-".to_owned(),
    };
    let all = [
        (
            svg::number(summary.output_tokens_per_s.round()),
            "output tokens/s",
        ),
        (format!("{:.2}", summary.requests_per_s), "requests/s"),
        (p50_p99(summary.ttft_ms), "TTFT ms, p50 / p99"),
        (p50_p99(summary.tpot_ms), "TPOT ms, p50 / p99"),
        (
            format!("{} of {}", summary.succeeded, summary.requests),
            "requests succeeded",
        ),
    ];
    let tile = |(value, name): (String, &str)| {
        format!(r#"<div class="card tile"><b>{value}</b><span>{name}</span></div>"#)
    };
    all.map(tile).concat()
}

fn warnings(report: &Report) -> String {
    let mut items = String::new();
    // Writing to a String cannot fail.
    for (kind, errors) in &report.summary.errors {
        let (count, example) = (errors.count, escaped(&errors.example));
        let _ = write!(
            items,
            r#"<li class="bad">{count} x {}: {example}</li>"#,
            escaped(kind)
        );
    }
    for note in &report.notes {
        let _ = write!(items, "<li>{}</li>", escaped(note));
    }
    match items.is_empty() {
        true => items,
        false => format!(
            r#"<section class="card section"><h2>To know when reading this</h2><ul>{items}</ul></section>"#
        ),
    }
}

fn plots(report: &Report, good: &[Record]) -> String {
    let milliseconds = |value: fn(&Record) -> Option<f64>| good.iter().filter_map(value).collect();
    let gaps = good.iter().flat_map(|record| &record.gaps);
    let values: [Vec<f64>; 4] = [
        milliseconds(|record| Some(record.first?.as_secs_f64() * 1e3)),
        milliseconds(|record| Some(record.time_per_token()? * 1e3)),
        gaps.map(|gap| f64::from(*gap) / 1e3).collect(),
        milliseconds(|record| Some(record.end.as_secs_f64() * 1e3)),
    ];
    let titles = [
        "Time to first token",
        "Time per output token",
        "Between tokens",
        "End to end",
    ];
    let mut out = String::new();
    let spreads = latencies(&report.summary).map(|(_, spread)| spread);
    for ((title, values), spread) in titles.into_iter().zip(values).zip(spreads) {
        let Some(spread) = spread else { continue };
        let marks = [
            ("p50", spread.p50),
            ("p90", spread.p90),
            ("p99", spread.p99),
        ];
        let plot = svg::distribution(&cdf::distribution(values), &marks);
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            r#"<section class="card"><h2>{title} <span>share of all at or below</span></h2>{plot}</section>"#
        );
    }
    out
}

fn latency_table(report: &Report) -> String {
    let mut out =
        "<table><tr><th></th><th>mean</th><th>p50</th><th>p90</th><th>p99</th><th>max</th></tr>"
            .to_owned();
    for (name, spread) in latencies(&report.summary) {
        let Some(spread) = spread else { continue };
        let cells = parts(spread).map(|(_, value)| format!("<td>{value:.2}</td>"));
        // Writing to a String cannot fail.
        let _ = write!(out, "<tr><td>{name}</td>{}</tr>", cells.concat());
    }
    out + "</table>"
}

fn facts(report: &Report) -> String {
    let (summary, client) = (&report.summary, &report.client);
    let tokens = format!(
        "{}, {} of answers in {} events",
        prompt_tokens(summary),
        summary.output_tokens,
        summary.events
    );
    let mut rows = vec![
        ("duration".to_owned(), format!("{:.2} s", summary.wall_s)),
        ("tokens".to_owned(), tokens),
        ("client".to_owned(), client.text(summary.events)),
        ("client machine".to_owned(), report.client_machine.clone()),
        (
            "program".to_owned(),
            format!("ropeteam bench {}", report.version),
        ),
    ];
    rows.extend(report.settings.iter().cloned());
    let mut out = r#"<table class="facts">"#.to_owned();
    // Writing to a String cannot fail.
    for (name, value) in rows {
        let _ = write!(
            out,
            "<tr><th>{}</th><td>{}</td></tr>",
            escaped(&name),
            escaped(&value)
        );
    }
    let _ = write!(
        out,
        "<tr><th>command</th><td><code>{}</code></td></tr></table>",
        escaped(&report.command)
    );
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_the_page_is_filled_once() {
        let text = filled(&[("title", "{{lead}}".to_owned()), ("lead", "x".to_owned())]);
        assert!(
            text.contains("<title>{{lead}}</title>"),
            "not looked through again"
        );
        assert!(text.contains(r#"<p class="lead">x</p>"#));
        assert!(!text.contains("{{server"));
    }

    #[test]
    fn what_a_server_says_cannot_write_markup() {
        assert_eq!(
            escaped(r#"<a href="x">&"#),
            "&lt;a href=&quot;x&quot;&gt;&amp;"
        );
    }

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere() {
        for word in ["http://", "https://", "src=", "url(", "@import", "<script"] {
            assert!(!PAGE.contains(word), "{word}");
        }
    }
}
