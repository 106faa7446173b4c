//! Steps as graphs: the operators of a step in which every sequence decodes are captured once for each number of rows, and started
//! together from then on. A graph keeps the numbers of the host that its attentions were given, so these are given anew before each
//! start; there are several graphs for a size, so that one gets its numbers while the other runs.

use super::AclDevice;
use super::attention::Attention;
use crate::error::AclError;
use crate::session::Session;
use ropeteam_acl_sys::types::*;
use ropeteam_device::{DeviceError, Ids, Rows};
use std::collections::HashMap;
use std::rc::Rc;

/// Graphs for each number of rows: one runs, one gets its numbers.
const PER_SIZE: usize = 2;

/// All graphs.
pub struct Graphs {
    session: Rc<Session>,
    enabled: bool,
    /// By number of rows.
    sizes: HashMap<usize, Size>,
    /// What is being captured.
    recording: Option<Recording>,
    /// The stream is in a capture, and in a group of it.
    captures: bool,
    in_group: bool,
    /// The graph that the step under way starts, by rows and place.
    chosen: Option<(usize, usize)>,
    /// The ids of the step under way are where its first operator looks.
    ids_placed: bool,
}

/// Steps of so many rows.
#[derive(Default)]
struct Size {
    /// One has run operator by operator, so that all is prepared and allocated.
    warm: bool,
    /// They cannot be captured.
    unfit: bool,
    graphs: Vec<Graph>,
    /// Which is next.
    turn: usize,
}

struct Recording {
    rows: usize,
    groups: Vec<(aclrtTaskGrp, Attention)>,
}

struct Graph {
    handle: aclmdlRI,
    groups: Vec<(aclrtTaskGrp, Attention)>,
    /// Behind its last run, in the stream that computes.
    ran: aclrtEvent,
    has_run: bool,
    /// Behind its new numbers, in the stream that updates.
    updated: aclrtEvent,
}

impl Graphs {
    /// None yet.
    pub fn new(session: &Rc<Session>, enabled: bool) -> Self {
        Self {
            session: session.clone(),
            enabled: enabled && session.acl.graphs.absent().is_empty(),
            sizes: HashMap::new(),
            recording: None,
            captures: false,
            in_group: false,
            chosen: None,
            ids_placed: false,
        }
    }

    /// Whether the ids of the step under way are in place.
    pub fn has_ids(&self) -> bool {
        self.ids_placed
    }

    /// Whether operators are captured.
    pub fn records(&self) -> bool {
        self.recording.is_some()
    }

    /// What is captured up to `end_group` gets other numbers before each start.
    pub fn begin_group(&mut self) -> Result<(), AclError> {
        let session = &self.session;
        let begun = call!(
            session.acl,
            graphs.aclmdlRICaptureTaskGrpBegin(session.compute)
        );
        session.noted(begun)?;
        self.in_group = true;
        Ok(())
    }

    /// See `begin_group`.
    pub fn end_group(&mut self, attention: Attention) -> Result<(), AclError> {
        let session = &self.session;
        let mut group = aclrtTaskGrp::NULL;
        let ended = call!(
            session.acl,
            graphs.aclmdlRICaptureTaskGrpEnd(session.compute, &mut group)
        );
        session.noted(ended)?;
        self.in_group = false;
        if let Some(recording) = &mut self.recording {
            recording.groups.push((group, attention));
        }
        Ok(())
    }

    fn begin_capture(&mut self, rows: usize) -> bool {
        let session = &self.session;
        let begun = call!(
            session.acl,
            graphs.aclmdlRICaptureBegin(session.compute, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL)
        );
        match begun {
            Ok(()) => {
                let groups = Vec::new();
                self.recording = Some(Recording { rows, groups });
                self.captures = true;
                true
            }
            Err(error) => {
                self.give_up(rows, &error);
                false
            }
        }
    }

    /// Ends a capture; false when nothing came of it. An error where the stream is captured still, which then is of no use.
    fn end_capture(&mut self, recording: Recording) -> Result<bool, AclError> {
        let session = self.session.clone();
        let rows = recording.rows;
        let mut handle = aclmdlRI::NULL;
        let ended = call!(
            session.acl,
            graphs.aclmdlRICaptureEnd(session.compute, &mut handle)
        );
        self.captures = ended.is_err() && self.is_capturing();
        if let Err(error) = ended {
            self.give_up(rows, &error);
            return match self.captures {
                true => session.noted(Err(error)),
                false => Ok(false),
            };
        }
        let graph = Graph {
            handle,
            groups: recording.groups,
            ran: session.event()?,
            has_run: false,
            updated: session.event()?,
        };
        let size = self.sizes.entry(rows).or_default();
        size.graphs.push(graph);
        let place = size.graphs.len() - 1;
        tracing::debug!(rows, place, "captured a step as a graph");
        self.chosen = Some((rows, place));
        Ok(true)
    }

    /// Whether the stream is in a capture, which it may be even though the end of the capture failed.
    fn is_capturing(&self) -> bool {
        let session = &self.session;
        let (mut status, mut graph) = (ACL_MODEL_RI_CAPTURE_STATUS_NONE, aclmdlRI::NULL);
        let asked = call!(
            session.acl,
            graphs.aclmdlRICaptureGetInfo(session.compute, &mut status, &mut graph)
        );
        asked.is_err() || status != ACL_MODEL_RI_CAPTURE_STATUS_NONE
    }

    fn give_up(&mut self, rows: usize, error: &AclError) {
        tracing::warn!(rows, %error, "steps of so many rows cannot be captured and run operator by operator");
        self.sizes.entry(rows).or_default().unfit = true;
    }

    fn execute(&mut self, (rows, place): (usize, usize)) -> Result<(), AclError> {
        let session = &self.session;
        let graphs = self.sizes.get_mut(&rows);
        let Some(graph) = graphs.and_then(|size| size.graphs.get_mut(place)) else {
            return Ok(());
        };
        let started = call!(
            session.acl,
            graphs.aclmdlRIExecuteAsync(graph.handle, session.compute)
        );
        session.noted(started)?;
        graph.has_run = true;
        session.mark(graph.ran, session.compute)
    }

    /// Ends a capture that a failed step left behind.
    pub fn abandon(&mut self) {
        self.recording = None;
        if std::mem::take(&mut self.captures) {
            let (mut handle, mut group) = (aclmdlRI::NULL, aclrtTaskGrp::NULL);
            let session = &self.session;
            if std::mem::take(&mut self.in_group) {
                let stream = session.compute;
                let _ = call!(
                    session.acl,
                    graphs.aclmdlRICaptureTaskGrpEnd(stream, &mut group)
                );
            }
            let ended = call!(
                session.acl,
                graphs.aclmdlRICaptureEnd(session.compute, &mut handle)
            );
            if ended.is_ok() {
                let _ = call!(session.acl, graphs.aclmdlRIDestroy(handle));
            }
        }
    }

    fn destroy(&mut self) {
        for graph in self.sizes.drain().flat_map(|(_, size)| size.graphs) {
            let _ = call!(self.session.acl, graphs.aclmdlRIDestroy(graph.handle));
        }
    }
}

impl Drop for Graphs {
    fn drop(&mut self) {
        self.destroy();
    }
}

impl AclDevice {
    /// See `Device::begin_step`.
    pub(super) fn begin_or_replay(
        &mut self,
        ids: &Ids<'_>,
        rows: &Rows,
        alike: bool,
    ) -> Result<bool, DeviceError> {
        self.graphs.ids_placed = false;
        self.graphs.chosen = None;
        let highest = rows.positions.iter().copied().max().unwrap_or(0) as usize;
        let cache = self.cache.as_ref().filter(|cache| cache.reaches(highest));
        let count = rows.positions.len();
        let (true, true, Some(cache)) = (alike, self.graphs.enabled, cache) else {
            return Ok(false);
        };
        let shape = cache.shape;
        self.place_ids(ids)?;
        self.send_rows("begin_step", &shape, rows)?;
        let size = self.graphs.sizes.entry(count).or_default();
        if size.unfit || !size.warm {
            size.warm = true;
            self.graphs.ids_placed = true;
            return Ok(false);
        }
        self.graphs.ids_placed = true;
        if size.graphs.len() < PER_SIZE {
            self.launcher.has_graphs = true;
            self.graphs.begin_capture(count);
            return Ok(false);
        }
        let place = size.turn;
        size.turn = (place + 1) % PER_SIZE;
        self.update((count, place))?;
        self.graphs.chosen = Some((count, place));
        Ok(true)
    }

    /// Gives the attentions of a graph the numbers of this step.
    fn update(&mut self, (rows, place): (usize, usize)) -> Result<(), DeviceError> {
        let session = self.session.clone();
        let (acl, stream) = (session.acl, session.update);
        let graph = &self.graphs.sizes[&rows].graphs[place];
        let (groups, updated) = (graph.groups.clone(), graph.updated);
        if graph.has_run {
            session.order(stream, graph.ran)?;
        }
        for (group, attention) in groups {
            let begun = call!(acl, graphs.aclmdlRICaptureTaskUpdateBegin(stream, group));
            session.noted(begun)?;
            self.attend_rotated(&attention, stream)?;
            let ended = call!(acl, graphs.aclmdlRICaptureTaskUpdateEnd(stream));
            session.noted(ended)?;
        }
        session.mark(updated, stream)?;
        Ok(session.order(session.compute, updated)?)
    }

    /// See `Device::end_step`.
    pub(super) fn end_or_execute(&mut self) -> Result<bool, DeviceError> {
        self.graphs.ids_placed = false;
        if let Some(recording) = self.graphs.recording.take()
            && !self.graphs.end_capture(recording)?
        {
            return Ok(false);
        }
        if let Some(chosen) = self.graphs.chosen.take() {
            self.launcher.launches += 1;
            self.graphs.execute(chosen)?;
        }
        Ok(true)
    }

    /// Buffers that graphs use are others now: new graphs will be captured.
    pub(super) fn forget_graphs(&mut self) -> Result<(), DeviceError> {
        if self
            .graphs
            .sizes
            .values()
            .any(|size| !size.graphs.is_empty())
        {
            self.session.finish(self.session.compute)?;
            self.outbox.clear();
            self.graphs.destroy();
        }
        Ok(())
    }
}
