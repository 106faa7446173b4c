//! A result as a terminal shows it.

use super::{Report, prompt_tokens};
use crate::bench::metric::{latencies, parts};
use std::fmt::Write;

/// The whole text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    let summary = &report.summary;
    let settings = report.settings.iter();
    let settings: Vec<_> = settings
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let streamed = if report.streamed {
        "streamed"
    } else {
        "whole answers"
    };
    writeln!(
        out,
        "server      {} ({}, {streamed}), model {}",
        report.url, report.api, report.model
    )?;
    writeln!(out, "settings    {}", settings.join(", "))?;
    writeln!(out, "command     {}\n", report.command)?;
    writeln!(
        out,
        "{:<16}{:>11}{:>11}{:>11}{:>11}{:>11}",
        "ms", "mean", "p50", "p90", "p99", "max"
    )?;
    for (name, spread) in latencies(summary) {
        write!(out, "{name:<16}")?;
        match spread {
            Some(spread) => {
                for (_, value) in parts(spread) {
                    write!(out, "{value:>11.2}")?;
                }
            }
            None => write!(out, "{:>11}", "-")?,
        }
        writeln!(out)?;
    }
    let failed = summary.requests - summary.succeeded;
    writeln!(
        out,
        "\nrequests    {} succeeded, {failed} failed in {:.2} s: {:.2}/s",
        summary.succeeded, summary.wall_s, summary.requests_per_s
    )?;
    writeln!(
        out,
        "tokens      {:.1} output/s{}",
        summary.output_tokens_per_s,
        summary
            .total_tokens_per_s
            .map(|rate| format!(", {rate:.1} in all/s"))
            .unwrap_or_default()
    )?;
    writeln!(
        out,
        "            {}, {} of answers",
        prompt_tokens(summary),
        summary.output_tokens
    )?;
    writeln!(out, "client      {}", report.client.text(summary.events))?;
    for (kind, errors) in &summary.errors {
        let example = errors.example.lines().next().unwrap_or_default();
        writeln!(
            out,
            "error       {} x {kind}{}{example}",
            errors.count,
            if example.is_empty() { "" } else { ": " }
        )?;
    }
    for note in &report.notes {
        writeln!(out, "note        {note}")?;
    }
    Ok(())
}
