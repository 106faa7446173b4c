//! Records of requests, with all that is needed to repeat them byte for byte: `ropeteam replay`. Written where `record_dir` says so, one
//! JSON line per request, into a file that does not grow for ever; what was last on a device that dies is written apart.
//!
//! `record.rs` is one record, `tape.rs` makes it while its answer goes by, `black_box.rs` keeps those of each device. Not here: the
//! request log (`request_log.rs`), which says how long things took.

mod black_box;
mod record;
mod tape;

pub use record::{Ended, FORM, Record};
pub use tape::Taped;

use crate::VERSION;
use black_box::BlackBoxes;
use record::sha256;
use ropeteam_actors::Engine;
use ropeteam_engine::request::GenerateRequest;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tape::Tape;

/// The file of records in its folder.
const FILE: &str = "requests.jsonl";
/// What it becomes when it is full.
const FULL_FILE: &str = "requests.old.jsonl";
/// When it is full.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Records that may wait for the disk; more are dropped, for no request waits for one.
const QUEUE: usize = 1024;

/// Where records go. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    shared: Arc<Shared>,
}

struct Shared {
    queue: SyncSender<String>,
    model: String,
    /// SHA-256 of the weights, once it is known.
    weights: Mutex<Option<String>>,
    /// Prompts and answers are kept.
    content: bool,
    boxes: BlackBoxes,
}

impl Records {
    /// Begins to record into the folder, which is made if it is not there. With `content`, prompts and answers are kept, without which
    /// nothing can be repeated.
    ///
    /// # Errors
    /// When the folder or the file in it cannot be written.
    pub fn start(folder: &Path, content: bool, model: &str) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = Pages::open(folder)?;
        let (queue, lines) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("records".into())
            .spawn(move || write_all(&lines, file))?;
        Ok(Records {
            shared: Arc::new(Shared {
                queue,
                model: model.to_owned(),
                weights: Mutex::default(),
                content,
                boxes: BlackBoxes::new(folder),
            }),
        })
    }

    /// From now on records name these weights.
    pub fn set_weights(&self, sum: String) {
        *lock(&self.shared.weights) = Some(sum);
    }

    /// Listens to the engine: what was last on a device is written when that dies.
    pub fn watch(&self, engine: &Engine) {
        let mut events = engine.subscribe();
        let records = self.clone();
        actix::spawn(async move {
            while let Some(event) = events.next().await {
                for death in records.shared.boxes.hear(&event) {
                    let records = records.clone();
                    actix::spawn(async move {
                        records.shared.boxes.write_when_recorded(death).await;
                    });
                }
            }
        });
    }

    /// Records a request while its events go by.
    pub(crate) fn tape(&self, request: &GenerateRequest) -> Tape {
        let shared = &self.shared;
        let mut record = Record::of(request, shared.content);
        record.model.clone_from(&shared.model);
        record.weights.clone_from(&lock(&shared.weights));
        record.build = VERSION.to_owned();
        Tape::new(self.clone(), record)
    }

    fn keep(&self, record: &Record) {
        let Ok(line) = serde_json::to_string(record) else {
            return;
        };
        if self.shared.queue.try_send(line).is_err() {
            metrics::counter!("ropeteam_records_dropped_total").increment(1);
        }
    }
}

/// SHA-256 of a model's files together: of a GGUF file, or of the weights and JSON files in a folder by name. Reads all of them.
///
/// # Errors
/// When one cannot be read.
pub fn weights_sum(path: &Path) -> io::Result<String> {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let belongs = |file: &PathBuf| {
            let end = file.extension().and_then(|end| end.to_str());
            matches!(end, Some("safetensors" | "json"))
        };
        let entries = std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
        files = entries.collect::<io::Result<Vec<_>>>()?;
        files.retain(belongs);
        files.sort();
    }
    sha256::of_files(&files)
}

/// The file of records, begun anew when it is full; the one before is kept.
struct Pages {
    folder: PathBuf,
    file: File,
    bytes: u64,
}

impl Pages {
    fn open(folder: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join(FILE))?;
        let bytes = file.metadata()?.len();
        Ok(Pages {
            folder: folder.to_owned(),
            file,
            bytes,
        })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.bytes > FILE_BYTES_MAX {
            std::fs::rename(self.folder.join(FILE), self.folder.join(FULL_FILE))?;
            *self = Pages::open(&self.folder)?;
        }
        self.bytes += line.len() as u64 + 1;
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}

fn write_all(lines: &Receiver<String>, mut pages: Pages) {
    while let Ok(line) = lines.recv() {
        if let Err(error) = pages.write(&line) {
            tracing::warn!(%error, "records cannot be written, no more follow");
            return;
        }
    }
}

/// A lock's content, whatever befell whoever held it: a record is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
