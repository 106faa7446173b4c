//! One line per request, for a spreadsheet.

use crate::bench::load::Run;
use crate::bench::record::Record;
use std::fmt::Write;
use std::time::Duration;

const HEAD: &str =
    "start_s,ttft_ms,tpot_ms,e2e_ms,prompt_tokens,cached_tokens,output_tokens,events,error\n";

/// All requests in the order of their starts. What is not known is left empty.
pub fn text(run: &Run) -> String {
    let mut records: Vec<_> = run.records.iter().collect();
    records.sort_by_key(|record| record.start);
    let mut text = HEAD.to_owned();
    for record in records {
        line(&mut text, record);
    }
    text
}

fn line(text: &mut String, record: &Record) {
    let ms = |span: Duration| format!("{:.3}", span.as_secs_f64() * 1e3);
    let first = record.first.map(ms).unwrap_or_default();
    let tpot = record.time_per_token().map(|s| format!("{:.3}", s * 1e3));
    let prompt = record.prompt_tokens().map(|count| count.to_string());
    let cached = record.usage.map_or(0, |usage| usage.cached);
    let error = record.failure.as_ref().map(|failure| failure.kind());
    // Writing to a String cannot fail; a kind of failure holds neither commas nor quotes.
    let _ = writeln!(
        text,
        "{:.6},{first},{},{},{},{cached},{},{},{}",
        record.start.as_secs_f64(),
        tpot.unwrap_or_default(),
        ms(record.end),
        prompt.unwrap_or_default(),
        record.output_tokens(),
        record.events(),
        error.unwrap_or_default(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::Failure;

    #[test]
    fn every_request_is_a_line_and_gaps_are_empty() {
        let good = Record {
            start: Duration::from_millis(500),
            first: Some(Duration::from_millis(20)),
            end: Duration::from_millis(45),
            gaps: vec![10_000, 15_000],
            prompt_counted: Some(8),
            ..Record::default()
        };
        let bad = Record {
            failure: Some(Failure::Timeout),
            end: Duration::from_secs(1),
            ..Record::default()
        };
        let run = Run {
            records: vec![good, bad],
            ..Run::default()
        };
        let expected =
            "0.000000,,,1000.000,,0,0,0,timeout\n0.500000,20.000,12.500,45.000,8,0,3,3,\n";
        assert_eq!(text(&run), format!("{HEAD}{expected}"));
    }
}
