//! What was last on each device: written into a file of its own when the device dies, for whoever wants to know what killed it.

use super::lock;
use super::record::Record;
use crate::http::wall_clock;
use ropeteam_engine::ids::{DeviceId, SeqId};
use ropeteam_engine::observe::Event;
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Requests that are kept per device.
const KEPT: usize = 64;
/// Requests whose beginning on a device was not told yet; more only when events were lost, and then all are forgotten.
const OPEN_MAX: usize = 1 << 16;
/// Files written by one process: a device that dies again and again must not fill the disk.
const FILES_MAX: u32 = 100;
/// How long a death is not written because sessions have something to tell; one whose client has left never does.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often records are looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The last requests of each device.
pub(super) struct BlackBoxes {
    folder: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Records of requests whose end was not told yet.
    open: HashMap<String, Arc<Mutex<Record>>>,
    request_of: HashMap<SeqId, Arc<str>>,
    seqs_of: HashMap<Arc<str>, Vec<SeqId>>,
    last: HashMap<DeviceId, VecDeque<Arc<Mutex<Record>>>>,
    deaths: Vec<Death>,
    files: u32,
}

/// The end of a device's life, of which something is still to be heard: sessions tell what they know in their own time.
pub(super) struct Death {
    device: DeviceId,
    name: String,
    head: String,
    /// Interrupted sequences whose sessions have not told yet that they know.
    awaited: Vec<SeqId>,
    /// Records of interrupted requests, and how many tokens a sequence of each had, prompt and all.
    interrupted: Vec<(Arc<Mutex<Record>>, u32)>,
    heard: Instant,
}

impl Death {
    /// Whether nothing more is to be heard, or that took too long.
    fn is_known(&self) -> bool {
        self.awaited.is_empty() || self.heard.elapsed() > PATIENCE
    }

    /// Whether records have what sessions sent before: it passes them on the way to the client.
    fn is_recorded(&self) -> bool {
        self.interrupted.iter().all(|(record, tokens)| {
            let record = lock(record);
            let prompt = record.prompt.len();
            let any = record.ended.iter().any(|ended| !ended.ids.is_empty());
            prompt > 0 && (any || prompt >= *tokens as usize)
        })
    }
}

impl BlackBoxes {
    pub fn new(folder: &Path) -> Self {
        BlackBoxes {
            folder: folder.to_owned(),
            inner: Mutex::default(),
        }
    }

    /// A request begins.
    pub fn begin(&self, id: &str, record: &Arc<Mutex<Record>>) {
        let mut inner = lock(&self.inner);
        if inner.open.len() >= OPEN_MAX {
            inner.open.clear();
        }
        inner.open.insert(id.to_owned(), record.clone());
    }

    /// Takes in what the engine tells; returns the deaths of which no session has more to tell.
    pub fn hear(&self, event: &Event) -> Vec<Death> {
        match event {
            Event::Admitted { request, seqs, .. } => {
                let mut inner = lock(&self.inner);
                for &seq in seqs {
                    inner.request_of.insert(seq, request.clone());
                }
                inner.seqs_of.insert(request.clone(), seqs.clone());
            }
            Event::Scheduled { seq, device, .. } => lock(&self.inner).scheduled(*seq, *device),
            Event::Replayed { seq, tokens } => lock(&self.inner).told(*seq, *tokens),
            Event::Finished(finished) => lock(&self.inner).forget(&finished.request),
            Event::Refused { request, .. } => lock(&self.inner).forget(request),
            Event::DeviceDied {
                device,
                epoch,
                cause,
                detail,
                interrupted,
            } => {
                lock(&self.inner).deaths.push(Death {
                    device: *device,
                    name: format!("device-{device}-life-{epoch}-{}.jsonl", std::process::id()),
                    head: json!({"device": device, "life": epoch, "time": wall_clock::now(),
                        "cause": cause, "detail": detail, "interrupted": interrupted.len()})
                    .to_string(),
                    awaited: interrupted.clone(),
                    interrupted: Vec::new(),
                    heard: Instant::now(),
                });
            }
            _ => {}
        }
        let is_known = |death: &mut Death| death.is_known();
        let deaths = &mut lock(&self.inner).deaths;
        deaths.extract_if(.., is_known).collect()
    }

    /// Writes a death down, once the records have what was sent before.
    pub async fn write_when_recorded(&self, death: Death) {
        while !death.is_recorded() && death.heard.elapsed() < PATIENCE {
            actix::clock::sleep(LOOK_EVERY).await;
        }
        self.write(&death);
    }

    fn write(&self, death: &Death) {
        let lines = {
            let mut inner = lock(&self.inner);
            inner.files += 1;
            if inner.files > FILES_MAX {
                return;
            }
            inner.lines(death)
        };
        let (device, file) = (death.device, self.folder.join(&death.name));
        match std::fs::write(&file, lines) {
            Ok(()) => tracing::info!(%device, file = %file.display(), "last requests written"),
            Err(error) => tracing::warn!(%device, %error, "last requests cannot be written"),
        }
    }
}

impl Inner {
    fn scheduled(&mut self, seq: SeqId, device: DeviceId) {
        let Some(request) = self.request_of.get(&seq) else {
            return;
        };
        let Some(record) = self.open.get(&**request).cloned() else {
            return;
        };
        let last = self.last.entry(device).or_default();
        if last.iter().any(|other| Arc::ptr_eq(other, &record)) {
            return;
        }
        last.push_back(record);
        if last.len() > KEPT {
            last.pop_front();
        }
    }

    fn forget(&mut self, request: &str) {
        for seq in self.seqs_of.remove(request).into_iter().flatten() {
            self.told(seq, 0);
            self.request_of.remove(&seq);
        }
        self.open.remove(request);
    }

    /// The session of a sequence with so many tokens knows of the death of its device, and has sent all that it had from there.
    fn told(&mut self, seq: SeqId, tokens: u32) {
        let request = self.request_of.get(&seq);
        let record = request.and_then(|request| self.open.get(&**request).cloned());
        let mut died = Vec::new();
        for death in &mut self.deaths {
            if let Some(i) = death.awaited.iter().position(|&awaited| awaited == seq) {
                death.awaited.swap_remove(i);
                death
                    .interrupted
                    .extend(record.clone().map(|record| (record, tokens)));
                died.push(death.device);
            }
        }
        for device in died {
            self.scheduled(seq, device);
        }
    }

    /// A file's content: the death, and a line per record.
    fn lines(&self, death: &Death) -> String {
        let mut lines = death.head.clone() + "\n";
        let last = self.last.get(&death.device).into_iter().flatten();
        let sealed = last.map(|record| lock(record).sealed());
        for line in sealed.filter_map(|record| serde_json::to_string(&record).ok()) {
            lines += &line;
            lines.push('\n');
        }
        lines
    }
}
