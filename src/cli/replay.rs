//! `ropeteam replay`: makes recorded requests again and compares what comes, token by token and byte by byte.

use super::flags::{Answering, ConfigFlags};
use super::local::Local;
use super::output;
use crate::VERSION;
use crate::exit::Exit;
use crate::http::records::{Ended, FORM, Record, weights_sum};
use crate::start_error::StartError;
use futures_util::StreamExt;
use ropeteam_actors::Engine;
use ropeteam_models::grammar::Grammars;
use std::fmt;
use std::path::{Path, PathBuf};

/// What to repeat.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// File of records, as a server with --record-dir writes it, or what it wrote when a device died
    record: PathBuf,
    /// Only the requests whose id begins with this
    #[arg(long, value_name = "ID", default_value = "")]
    id: String,
    #[command(flatten)]
    config: ConfigFlags<Answering>,
}

/// Runs the command.
///
/// # Errors
/// When the file cannot be read, the model cannot be started, or there is nothing to repeat.
pub fn run(args: ReplayArgs) -> Result<Exit, StartError> {
    let records = read(&args.record, &args.id)?;
    Local::run(args.config, async |mut local| {
        if let Some(files) = local.files()
            && let Some(recorded) = records.iter().find_map(|record| record.weights.as_ref())
            && !weights_sum(files).is_ok_and(|sum| sum == *recorded)
        {
            eprintln!("ropeteam: the records were made with other weights ({recorded})");
        }
        if let Some(other) = records.iter().find(|record| record.build != VERSION) {
            let build = &other.build;
            eprintln!("ropeteam: the records were made by version {build}, this is {VERSION}");
        }
        let (engine, grammars, signals) = local.parts();
        let mut tally = Tally::default();
        for record in &records {
            let verdict = tokio::select! {
                verdict = repeat(engine, grammars, record) => verdict,
                _ = signals.next() => return Ok(Exit::Signal),
            };
            output::print(&format!("{}  {verdict}\n", record.id))?;
            tally.count(&verdict);
        }
        output::print(&format!("{tally}\n"))?;
        Ok(tally.exit())
    })
}

/// What came of one record.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// All of its tokens came again.
    Same(usize),
    /// The first difference.
    Differs(String),
    /// Why there is nothing to compare.
    Incomparable(&'static str),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Same(tokens) => write!(f, "the same, {tokens} tokens"),
            Verdict::Differs(difference) => f.write_str(difference),
            Verdict::Incomparable(why) => write!(f, "not compared: {why}"),
        }
    }
}

/// How many records came to which verdict.
#[derive(Debug, Default)]
struct Tally {
    same: usize,
    differ: usize,
    incomparable: usize,
}

impl Tally {
    fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Same(_) => &mut self.same,
            Verdict::Differs(_) => &mut self.differ,
            Verdict::Incomparable(_) => &mut self.incomparable,
        } += 1;
    }

    /// That nothing could be compared is no success either.
    fn exit(&self) -> Exit {
        match (self.differ, self.same) {
            (0, 1..) => Exit::Done,
            _ => Exit::Failed,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compared = self.same + self.differ;
        write!(f, "{} of {compared} compared are the same", self.same)?;
        match self.incomparable {
            0 => Ok(()),
            count => write!(f, "; {count} could not be compared"),
        }
    }
}

fn read(file: &Path, id: &str) -> Result<Vec<Record>, StartError> {
    let wrong = |problem: String| StartError::Usage(format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut records = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        // The first line of what was written when a device died is about the device.
        if number == 1 && line.starts_with("{\"device\"") {
            continue;
        }
        let record: Record = serde_json::from_str(line)
            .map_err(|error| wrong(format!("line {number} is no record: {error}")))?;
        if record.form != FORM {
            let form = record.form;
            return Err(wrong(format!(
                "line {number} has form {form}, this version reads {FORM}"
            )));
        }
        if record.id.starts_with(id) {
            records.push(record);
        }
    }
    let whole = records.iter().filter(|record| record.content).count();
    match whole {
        0 if records.is_empty() => Err(wrong("there is no such record".to_owned())),
        0 => Err(wrong(
            "the records hold no prompts: repeat what a server with --record-content on wrote"
                .to_owned(),
        )),
        _ => Ok(records),
    }
}

async fn repeat(engine: &Engine, grammars: &Grammars, record: &Record) -> Verdict {
    if !record.content {
        return Verdict::Incomparable("it was recorded without its prompt");
    }
    if record.prompt.is_empty() {
        return Verdict::Incomparable("it was refused before it began");
    }
    match make_again(engine, grammars, record).await {
        Ok(tokens) => Verdict::Same(tokens),
        Err(difference) => Verdict::Differs(difference),
    }
}

/// How many tokens came again, or the first difference.
async fn make_again(
    engine: &Engine,
    grammars: &Grammars,
    record: &Record,
) -> Result<usize, String> {
    let mut request = record.request();
    if let Some(source) = &record.constraint {
        let compiled = grammars.compile_source(source);
        request.constraint = Some(compiled.map_err(|error| format!("its grammar: {error}"))?);
    }
    let mut again = Record::of(&request, true);
    let mut events = engine.generate(request);
    while let Some(event) = events.next().await {
        again.take(&event);
    }
    if let (Some(why), None) = (&again.failed, &record.failed) {
        return Err(format!("failed: {why}"));
    }
    if again.prompt != record.prompt {
        return Err("the prompt was cut otherwise".to_owned());
    }
    for (choice, (was, is)) in record.ended.iter().zip(&again.ended).enumerate() {
        compare(was, is).map_err(|difference| format!("choice {choice}: {difference}"))?;
    }
    Ok(record.ended.iter().map(|ended| ended.ids.len()).sum())
}

/// An answer that was cut off must be the beginning of the one that was not.
fn compare(was: &Ended, is: &Ended) -> Result<(), String> {
    let cut = ["", "cancelled", "timeout", "device_error"].contains(&&*was.finish);
    if let Some(at) = (0..was.ids.len()).find(|&at| was.ids.get(at) != is.ids.get(at)) {
        let id = |ids: &Ended| {
            ids.ids
                .get(at)
                .map_or("none".to_owned(), ToString::to_string)
        };
        return Err(format!("token {at} was {}, is {}", id(was), id(is)));
    }
    if cut && is.text.starts_with(&was.text) {
        return Ok(());
    }
    if was.ids.len() != is.ids.len() {
        return Err(format!("{} tokens, were {}", is.ids.len(), was.ids.len()));
    }
    if was.text != is.text {
        return Err(format!("text {:?}, was {:?}", is.text, was.text));
    }
    if was.finish != is.finish {
        return Err(format!("ended by {:?}, was {:?}", is.finish, was.finish));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(verdicts: &[Verdict]) -> (String, Exit) {
        let mut tally = Tally::default();
        verdicts.iter().for_each(|verdict| tally.count(verdict));
        (tally.to_string(), tally.exit())
    }

    #[test]
    fn what_was_refused_is_not_counted_as_the_same() {
        let refused = || Verdict::Incomparable("it was refused before it began");
        let differs = Verdict::Differs("token 0 was 1, is 2".to_owned());
        let found = tally(&[Verdict::Same(3), refused(), refused()]);
        let text = "1 of 1 compared are the same; 2 could not be compared";
        assert_eq!(found, (text.to_owned(), Exit::Done));
        let (text, exit) = tally(&[Verdict::Same(3), differs]);
        assert_eq!(
            (text.as_str(), exit),
            ("1 of 2 compared are the same", Exit::Failed)
        );
        assert_eq!(tally(&[refused()]).1, Exit::Failed);
    }
}
