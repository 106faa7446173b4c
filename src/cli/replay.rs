//! `ropeteam replay`: makes recorded requests again and compares what comes, token by token and byte by byte.

use super::flags::{Answering, ConfigFlags};
use super::local::Local;
use super::output;
use crate::VERSION;
use crate::exit::Exit;
use crate::http::records::{Ended, FORM, Record, weights_sum};
use crate::start_error::StartError;
use futures_util::StreamExt;
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
    Local::run(args.config, async |local| {
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
        let mut differ = 0;
        for record in &records {
            let verdict = repeat(&local, record).await;
            differ += usize::from(verdict.is_err());
            let word = verdict.unwrap_or_else(|difference| difference);
            output::print(&format!("{}  {word}\n", record.id))?;
        }
        let count = records.len();
        output::print(&format!("{} of {count} are the same\n", count - differ))?;
        Ok(match differ {
            0 => Exit::Done,
            _ => Exit::Failed,
        })
    })
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
        _ => {
            records.retain(|record| record.content);
            Ok(records)
        }
    }
}

/// In words: that all is the same, or `Err` with the first difference.
async fn repeat(local: &Local, record: &Record) -> Result<String, String> {
    if record.prompt.is_empty() {
        return Ok("was refused before it began; nothing to compare".to_owned());
    }
    let mut request = record.request();
    if let Some(source) = &record.constraint {
        let compiled = local.grammars().compile_source(source);
        request.constraint = Some(compiled.map_err(|error| format!("its grammar: {error}"))?);
    }
    let mut again = Record::of(&request, true);
    let mut events = local.engine.generate(request);
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
    let tokens: usize = record.ended.iter().map(|ended| ended.ids.len()).sum();
    Ok(format!("the same, {tokens} tokens"))
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
