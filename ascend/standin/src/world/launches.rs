//! The two phases of an operator: prepared executors and their launches.

use super::World;
use crate::caller::Caller;
use crate::clock::Clock;
use crate::fail::{Fail, mistake};
use crate::memory::Span;
use crate::objects::found;
use crate::operators::{Executor, Operand, Role};
use crate::task::{Access, Id, Work};
use crate::tensor::Tensor;
use crate::world::streams::NewTask;
use ropeteam_acl_sys::code::*;
use std::sync::Arc;

/// Tensors begin at multiples of this.
const TENSOR_ALIGNMENT: u64 = 32;

/// What a second phase is given.
pub struct Launch {
    /// Name of the called operator.
    pub operator: &'static str,
    /// Address of the workspace.
    pub workspace: u64,
    /// Its size.
    pub workspace_size: u64,
    /// Handle of the executor.
    pub executor: Id,
    /// Handle of the stream.
    pub stream: Id,
}

impl World {
    /// Ends a first phase: keeps the executor and says how much workspace it wants.
    pub fn prepare(
        &mut self,
        caller: &mut Caller,
        mut executor: Executor,
    ) -> Result<(Id, u64), Fail> {
        executor.device = self.current(caller)?.1.device;
        check_aliases(&executor)?;
        let id = self.fresh_handle();
        let workspace = executor.workspace;
        self.executors.insert(id, executor);
        caller.prepared = Some(id);
        Ok((id, workspace))
    }

    /// A second phase.
    pub fn launch(&mut self, caller: &mut Caller, launch: &Launch) -> Result<(), Fail> {
        caller.prepared = None;
        let stream = self.own_stream(caller, launch.stream)?;
        let executor = found(&self.executors, launch.executor, "executor")?.clone();
        let invalid = |text: String| Err(mistake(ACLNN_ERR_PARAM_INVALID, text));
        if executor.operator != launch.operator {
            return invalid(format!("the executor is of {}", executor.operator));
        }
        if self.device_of(stream) != Some(executor.device) {
            return invalid(format!(
                "the executor was prepared on device {}",
                executor.device
            ));
        }
        let workspace = self.check_workspace(&executor, launch)?;
        for operand in &executor.operands {
            self.check_operand(operand, executor.device, executor.repeatable)?;
        }
        if !executor.repeatable {
            self.executors.remove(&launch.executor);
        }
        let readers = self.owners.readers.clone();
        self.enqueue(stream, task(executor, workspace, readers));
        Ok(())
    }

    fn check_workspace(&self, executor: &Executor, launch: &Launch) -> Result<Option<Span>, Fail> {
        if launch.workspace_size < executor.workspace {
            let (given, needed) = (launch.workspace_size, executor.workspace);
            return Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                format!("workspace of {given} bytes where {needed} are needed"),
            ));
        }
        if executor.workspace == 0 {
            return Ok(None);
        }
        let span = Span {
            address: launch.workspace,
            len: launch.workspace_size as usize,
        };
        self.check_inside(span, span.len, "the workspace")?;
        Ok(Some(span))
    }

    /// A tensor is described still, aligned, and lies in memory with room for what kernels read beyond its end.
    fn check_operand(
        &self,
        operand: &Operand,
        device: usize,
        repeatable: bool,
    ) -> Result<(), Fail> {
        let tensor = &operand.tensor;
        if !repeatable && !self.objects.tensors.contains_key(&operand.handle) {
            return Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                "a tensor was destroyed before the launch",
            ));
        }
        if tensor.elements() == 0 {
            return Ok(());
        }
        let span = tensor.span();
        if !span.address.is_multiple_of(TENSOR_ALIGNMENT) {
            return Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                format!("a tensor at {:#x}, no multiple of 32", span.address),
            ));
        }
        let padded = span.len.div_ceil(32) * 32 + 32;
        self.check_inside(span, padded, &format!("a tensor of device {device}"))
    }

    fn check_inside(&self, span: Span, len: usize, what: &str) -> Result<(), Fail> {
        let found = self.memory.find(span.address);
        let room = found.map(|(base, block)| block.len() - (span.address - base) as usize);
        match room {
            Some(room) if room >= len => Ok(()),
            Some(room) => Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                format!("{what}, {span}, needs {len} bytes with padding and has {room}"),
            )),
            None => Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                format!("{what}, {span}, is not allocated (any more)"),
            )),
        }
    }

    /// `aclSetAclOpExecutorRepeatable`.
    pub fn make_repeatable(&mut self, caller: &Caller, id: Id) -> Result<(), Fail> {
        let executor = found(&self.executors, id, "executor")?;
        if caller.prepared != Some(id) {
            return Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                "an executor is made repeatable right after its first phase",
            ));
        }
        if executor.holds_host_numbers {
            return Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                format!("{} holds numbers of the host", executor.operator),
            ));
        }
        if let Some(executor) = self.executors.get_mut(&id) {
            executor.repeatable = true;
        }
        Ok(())
    }

    /// `aclDestroyAclOpExecutor`.
    pub fn destroy_executor(&mut self, id: Id) -> Result<(), Fail> {
        let executor = found(&self.executors, id, "executor")?;
        if !executor.repeatable {
            let text = "an executor that is not repeatable ends with its launch";
            self.violations.report("aclDestroyAclOpExecutor", text);
        }
        self.executors.remove(&id);
        Ok(())
    }

    /// `aclSetTensorAddr`: the index-th tensor (those left out are counted) of a repeatable executor lies elsewhere from now on.
    pub fn move_tensor(&mut self, id: Id, index: usize, address: u64) -> Result<(), Fail> {
        found(&self.executors, id, "executor")?;
        let executor = self.executors.get_mut(&id);
        let operands = executor.map_or(&mut [][..], |executor| &mut executor.operands);
        let count = operands.len();
        let Some(operand) = operands.iter_mut().find(|o| o.place == index) else {
            return Err(mistake(
                ACLNN_ERR_PARAM_INVALID,
                format!("tensor {index} of {count}, or one that was left out"),
            ));
        };
        operand.tensor.address = address;
        Ok(())
    }
}

/// Nothing that is written may lie over anything else, unless the operator says so.
fn check_aliases(executor: &Executor) -> Result<(), Fail> {
    for (i, written) in executor.operands.iter().enumerate() {
        if written.role == Role::In {
            continue;
        }
        for (j, other) in executor.operands.iter().enumerate() {
            if i != j && overlap(&written.tensor, &other.tensor) {
                return Err(mistake(
                    ACLNN_ERR_PARAM_INVALID,
                    format!("tensor {i} is written over tensor {j}"),
                ));
            }
        }
    }
    Ok(())
}

fn overlap(a: &Tensor, b: &Tensor) -> bool {
    // Views that share memory without sharing an element are no overlap: columns of one matrix.
    if a.elements() == 0 || b.elements() == 0 || !a.span().meets(&b.span()) {
        return false;
    }
    let (mut a, mut b) = (a.runs(), b.runs());
    let (mut i, mut j) = (0, 0);
    a.sort_by_key(|run| run.address);
    b.sort_by_key(|run| run.address);
    while i < a.len() && j < b.len() {
        if a[i].meets(&b[j]) {
            return true;
        }
        match a[i].address < b[j].address {
            true => i += 1,
            false => j += 1,
        }
    }
    false
}

fn task(executor: Executor, workspace: Option<Span>, readers: Vec<u64>) -> NewTask {
    let cost = executor.cost;
    let tensors: Vec<Tensor> = executor.operands.into_iter().map(|o| o.tensor).collect();
    let mut spans: Vec<Span> = tensors.iter().map(Tensor::span).collect();
    spans.extend(workspace);
    let compute = executor.compute;
    let work = move |access: &mut Access<'_>| {
        if let Some(workspace) = workspace {
            access.scramble(workspace)?;
        }
        access.readers.clone_from(&readers);
        compute(access, &tensors)
    };
    NewTask {
        call: executor.operator,
        spans,
        work: Work::Run(Arc::new(work)),
        knows: Clock::default(),
        cost,
    }
}
