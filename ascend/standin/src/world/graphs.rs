//! Graphs: replaying what was captured, and changing the arguments of a group of its tasks. A replay uses the captured addresses
//! and the captured numbers of the host, whatever they have become since.

use super::World;
use crate::caller::Caller;
use crate::clock::{Clock, Epoch};
use crate::fail::{Fail, mistake};
use crate::memory::Span;
use crate::task::{Access, Id, Run, Work};
use crate::timing::Cost;
use crate::world::streams::NewTask;
use ropeteam_acl_sys::code::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Operators that hold numbers of the host, which are others in every step.
const HOLDS_NUMBERS: [&str; 1] = ["aclnnFusedInferAttentionScoreV4"];

/// A captured graph.
pub struct Graph {
    /// Its tasks in an order that keeps their dependencies.
    pub nodes: Vec<Node>,
    /// Groups of tasks that can be changed, by handle.
    pub groups: BTreeMap<Id, Range<usize>>,
    /// The stream it was last started in, and how many tasks that stream had then.
    started: Option<(Id, u64)>,
}

/// A captured task.
#[derive(Clone)]
pub struct Node {
    /// The call that asked for it.
    pub call: &'static str,
    /// What it may touch.
    pub spans: Vec<Span>,
    /// What it costs.
    pub cost: Cost,
    /// What it does, which an update exchanges.
    pub slot: Arc<Mutex<Slot>>,
}

/// The exchangeable part of a captured task.
pub struct Slot {
    /// What it does.
    pub run: Run,
    /// When it was last exchanged.
    pub changed: Option<Epoch>,
    /// When it last ran.
    pub used: Option<Epoch>,
    /// It was exchanged since it last ran.
    pub fresh: bool,
}

/// New tasks for a group, until there are as many as it has.
pub struct Update {
    group: Id,
    tasks: Vec<Node>,
}

impl Graph {
    /// Of captured tasks.
    pub fn new(nodes: Vec<Node>, groups: BTreeMap<Id, Range<usize>>) -> Self {
        Self {
            nodes,
            groups,
            started: None,
        }
    }
}

impl Update {
    /// Takes the next task.
    pub fn push(&mut self, node: Node) {
        self.tasks.push(node);
    }
}

impl World {
    fn graph(&self, id: Id) -> Result<&Graph, Fail> {
        self.graphs.get(&id).ok_or_else(|| {
            mistake(
                ACL_ERROR_RT_INVALID_HANDLE,
                format!("{id:#x} is no graph (any more)"),
            )
        })
    }

    /// `aclmdlRIExecuteAsync`.
    pub fn replay(&mut self, caller: &Caller, id: Id, stream: Id) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        self.check_not_capturing(stream)?;
        let nodes = self.graph(id)?.nodes.clone();
        for node in nodes {
            let cost = node.cost;
            let task = NewTask {
                call: node.call,
                spans: node.spans.clone(),
                work: Work::Run(Arc::new(move |access: &mut Access<'_>| {
                    run_node(access, &node)
                })),
                knows: Clock::default(),
                cost: Cost {
                    in_graph: true,
                    ..cost
                },
            };
            self.enqueue(stream, task);
        }
        let started = Some((stream, self.tasks_of(stream)));
        if let Some(graph) = self.graphs.get_mut(&id) {
            graph.started = started;
        }
        Ok(())
    }

    /// `aclmdlRIDestroy`.
    pub fn destroy_graph(&mut self, id: Id) -> Result<(), Fail> {
        if let Some((stream, tasks)) = self.graph(id)?.started
            && !self.has_done(stream, tasks)
        {
            return Err(mistake(ACL_ERROR_RT_MODEL_RUNNING, "the graph is running"));
        }
        self.graphs.remove(&id);
        Ok(())
    }

    /// The call of a captured task that needs a span as long as its graph lives.
    pub fn captured_on(&self, span: Span) -> Option<&'static str> {
        let nodes = self.graphs.values().flat_map(|graph| &graph.nodes);
        let mut touching = nodes.filter(|node| node.spans.iter().any(|own| own.meets(&span)));
        touching.next().map(|node| node.call)
    }

    /// `aclmdlRICaptureTaskUpdateBegin`.
    pub fn begin_update(&mut self, caller: &Caller, stream: Id, group: Id) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        self.check_not_capturing(stream)?;
        let known = self.graphs.values().any(|g| g.groups.contains_key(&group));
        let busy = self.updates.contains_key(&stream)
            || self.updates.values().any(|update| update.group == group);
        if !known || busy {
            let what = if known {
                "is being updated"
            } else {
                "is no group"
            };
            return Err(mistake(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                format!("{group:#x} {what}"),
            ));
        }
        let tasks = Vec::new();
        self.updates.insert(stream, Update { group, tasks });
        Ok(())
    }

    /// `aclmdlRICaptureTaskUpdateEnd`: the tasks take their places when the stream comes by.
    pub fn end_update(&mut self, caller: &Caller, stream: Id) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        let Some(update) = self.updates.remove(&stream) else {
            return Err(mistake(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "no update was begun in this stream",
            ));
        };
        let owner = self.graphs.values_mut();
        let mut owner = owner.filter_map(|graph| {
            let range = graph.groups.get(&update.group)?.clone();
            graph.nodes.get_mut(range)
        });
        let nodes = owner.next().unwrap_or_default();
        let calls = |nodes: &[Node]| nodes.iter().map(|node| node.call).collect::<Vec<_>>();
        let (old, new) = (calls(nodes), calls(&update.tasks));
        if old != new {
            return Err(mistake(
                ACL_ERROR_RT_INTERNAL_ERROR,
                format!("the group has {old:?}, the update {new:?}"),
            ));
        }
        for (node, task) in nodes.iter_mut().zip(&update.tasks) {
            node.spans.clone_from(&task.spans);
            node.cost = task.cost;
        }
        let places: Vec<Node> = nodes.to_vec();
        let work = move |access: &mut Access<'_>| {
            for (place, task) in places.iter().zip(&update.tasks) {
                exchange(access, place, task);
            }
            Ok(())
        };
        let task = NewTask {
            call: "aclmdlRICaptureTaskUpdateEnd",
            spans: Vec::new(),
            work: Work::Run(Arc::new(work)),
            knows: Clock::default(),
            cost: Cost::default(),
        };
        self.enqueue(stream, task);
        Ok(())
    }
}

/// Runs a captured task with the arguments that it has now.
fn run_node(access: &mut Access<'_>, node: &Node) -> Result<(), Fail> {
    let run = {
        let mut slot = node.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.changed.is_some_and(|at| !access.clock.knows(&at)) {
            let text = "the task's arguments are changed, and nothing orders this and the change";
            access.violations.report(node.call, text);
        }
        let is_stale = slot.used.is_some() && !std::mem::take(&mut slot.fresh);
        if is_stale && HOLDS_NUMBERS.contains(&node.call) {
            let text = "runs with the host's numbers of its last run: they were not updated";
            access.violations.report(node.call, text);
        }
        slot.used = Some(access.at);
        slot.run.clone()
    };
    run(access)
}

/// Gives a captured task other arguments.
fn exchange(access: &mut Access<'_>, place: &Node, task: &Node) {
    let new = task.slot.lock().unwrap_or_else(PoisonError::into_inner);
    let mut slot = place.slot.lock().unwrap_or_else(PoisonError::into_inner);
    if slot.used.is_some_and(|at| !access.clock.knows(&at)) {
        let text = "a replay uses the task, and nothing orders it and this change";
        access.violations.report(access.at.call, text);
    }
    slot.run = new.run.clone();
    slot.fresh = true;
    slot.changed = Some(access.at);
}
