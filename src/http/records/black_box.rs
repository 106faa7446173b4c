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

/// Requests that are kept per device.
const KEPT: usize = 64;
/// Requests whose beginning on a device was not told yet; more only when events were lost, and then all are forgotten.
const OPEN_MAX: usize = 1 << 16;
/// Files written by one process: a device that dies again and again must not fill the disk.
const FILES_MAX: u32 = 100;

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
    files: u32,
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

    /// Takes in what the engine tells.
    pub fn hear(&self, event: &Event) {
        match event {
            Event::Admitted { request, seqs, .. } => {
                let mut inner = lock(&self.inner);
                for &seq in seqs {
                    inner.request_of.insert(seq, request.clone());
                }
                inner.seqs_of.insert(request.clone(), seqs.clone());
            }
            Event::Scheduled { seq, device, .. } => lock(&self.inner).scheduled(*seq, *device),
            Event::Finished(finished) => lock(&self.inner).forget(&finished.request),
            Event::Refused { request, .. } => lock(&self.inner).forget(request),
            Event::DeviceDied {
                device,
                epoch,
                cause,
                detail,
                interrupted,
            } => {
                let head = json!({"device": device, "life": epoch, "time": wall_clock::now(),
                    "cause": cause, "detail": detail, "interrupted": interrupted});
                let name = format!("device-{device}-life-{epoch}-{}.jsonl", std::process::id());
                self.write(*device, &name, &head.to_string());
            }
            _ => {}
        }
    }

    fn write(&self, device: DeviceId, name: &str, head: &str) {
        let lines = {
            let mut inner = lock(&self.inner);
            inner.files += 1;
            if inner.files > FILES_MAX {
                return;
            }
            let last = inner.last.get(&device).into_iter().flatten();
            let sealed = last.map(|record| lock(record).sealed());
            let mut lines = head.to_owned() + "\n";
            for line in sealed.filter_map(|record| serde_json::to_string(&record).ok()) {
                lines += &line;
                lines.push('\n');
            }
            lines
        };
        let file = self.folder.join(name);
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
        self.open.remove(request);
        for seq in self.seqs_of.remove(request).into_iter().flatten() {
            self.request_of.remove(&seq);
        }
    }
}
