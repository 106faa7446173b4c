//! Launching operators: the first phase (checks, tiling) is done once per shape and its executor kept; a launch then only says where
//! the tensors are. All run on the compute stream and share one workspace, since one comes after the other.

use crate::error::AclError;
use crate::memory::{Address, Region, pointer};
use crate::session::Session;
use crate::tensor::{Tensor, View};
use ropeteam_acl_sys::types::*;
use ropeteam_acl_sys::{Absent, Acl};
use ropeteam_device::DeviceError;
use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::Rc;

/// Executors that are kept; beyond it, those not used for longest make room.
const KEPT: usize = 4096;
/// Smallest workspace.
const WORKSPACE: usize = 4 << 20;

/// An operator's second phase.
pub type Run =
    unsafe fn(&Acl, *mut c_void, u64, *mut aclOpExecutor, aclrtStream) -> Result<i32, Absent>;

/// An operator: its name and its second phase.
#[derive(Clone, Copy)]
pub struct Operator {
    /// The function.
    pub name: &'static str,
    /// The function, called.
    pub run: Run,
}

/// The operator behind an aclnn function.
macro_rules! operator {
    ($name:ident) => {
        $crate::launch::Operator {
            name: stringify!($name),
            run: |acl, workspace, size, executor, stream| {
                // SAFETY: handed on to the caller.
                unsafe { acl.operators.$name(workspace, size, executor, stream) }
            },
        }
    };
}

/// Launches an operator whose executor is kept: its first phase and itself, its tensors (with their places, where some are left out), what
/// else tells one shape from another, and the arguments of the first phase, of which `t[i]` is the i-th tensor.
macro_rules! launch {
    ($device:ident, $first:ident, $name:ident, $tensors:expr, $numbers:expr, |$t:ident| ($($argument:expr),* $(,)?)) => {
        launch!($device, $first, $name, $tensors, [], $numbers, |$t| ($($argument),*))
    };
    ($device:ident, $first:ident, $name:ident, $tensors:expr, $places:expr, $numbers:expr, |$t:ident| ($($argument:expr),* $(,)?)) => {{
        let acl = $device.session.acl;
        let launch = $crate::launch::Launch {
            operator: operator!($name),
            tensors: &$tensors,
            places: &$places,
            numbers: &$numbers,
        };
        $device.launcher.launch(&launch, |$t, made| {
            // SAFETY: tensors and other handles that live as long as the executor; null where the operator allows it.
            unsafe {
                acl.operators
                    .$first($($argument,)* &mut made.workspace, &mut made.executor)
            }
        })
    }};
}

/// A launch whose executor is kept: the tensors, with their places among the operator's own, and what else tells one shape from
/// another.
pub struct Launch<'a> {
    /// Which operator.
    pub operator: Operator,
    /// Its tensors.
    pub tensors: &'a [View],
    /// Where each stands among the operator's tensors, those left out counted; empty: one after the other.
    pub places: &'a [usize],
    /// Other arguments.
    pub numbers: &'a [i64],
}

/// What a first phase made.
#[derive(Clone, Copy)]
pub struct Prepared {
    /// Bytes of workspace that a launch takes.
    pub workspace: u64,
    /// What is launched.
    pub executor: *mut aclOpExecutor,
}

impl Prepared {
    /// Nothing yet, for a first phase to fill.
    pub const EMPTY: Self = Self {
        workspace: 0,
        executor: std::ptr::null_mut(),
    };
}

/// A kept executor.
struct Kept {
    acl: &'static Acl,
    prepared: Prepared,
    tensors: Vec<Tensor>,
    /// Where each of them is, as the executor knows.
    addresses: Vec<Address>,
    last_use: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = call!(
            self.acl,
            meta.aclDestroyAclOpExecutor(self.prepared.executor)
        );
    }
}

/// Launches operators on the compute stream.
pub struct Launcher {
    session: Rc<Session>,
    kept: HashMap<Box<[i64]>, Kept>,
    key: Vec<i64>,
    workspace: Option<Region>,
    /// Workspaces that became too small; graphs may still work in them.
    outgrown: Vec<Region>,
    /// Whether there are graphs.
    pub has_graphs: bool,
    /// Launches so far.
    pub launches: u64,
    /// First phases so far.
    pub preparations: u64,
}

impl Launcher {
    /// On a session's compute stream.
    pub fn new(session: &Rc<Session>) -> Self {
        Self {
            session: session.clone(),
            kept: HashMap::new(),
            key: Vec::new(),
            workspace: None,
            outgrown: Vec::new(),
            has_graphs: false,
            launches: 0,
            preparations: 0,
        }
    }

    /// Launches an operator; `prepare` is its first phase, for a shape that was not there before.
    ///
    /// # Errors
    /// When either phase refuses its arguments.
    pub fn launch(
        &mut self,
        launch: &Launch<'_>,
        prepare: impl FnOnce(&[*mut aclTensor], &mut Prepared) -> Result<i32, Absent>,
    ) -> Result<(), DeviceError> {
        self.key.clear();
        self.key.push(launch.operator.name.as_ptr() as i64);
        self.key.extend_from_slice(launch.numbers);
        for tensor in launch.tensors {
            tensor.describe(&mut self.key);
        }
        self.launches += 1;
        let now = self.launches;
        if !self.kept.contains_key(self.key.as_slice()) {
            self.make_room();
            let kept = self.prepare(launch, prepare)?;
            self.kept.insert(self.key.as_slice().into(), kept);
        }
        let acl = self.session.acl;
        let Some(kept) = self.kept.get_mut(self.key.as_slice()) else {
            return Ok(());
        };
        kept.last_use = now;
        for (index, view) in launch.tensors.iter().enumerate() {
            if kept.addresses[index] != view.address {
                let (executor, tensor) = (kept.prepared.executor, kept.tensors[index].handle());
                let place = launch.places.get(index).copied().unwrap_or(index);
                let moved = call!(
                    acl,
                    meta.aclSetTensorAddr(executor, place, tensor, pointer(view.address))
                );
                self.session.noted(moved)?;
                kept.addresses[index] = view.address;
            }
        }
        let prepared = kept.prepared;
        self.run(launch.operator, prepared, self.session.compute)
    }

    fn prepare(
        &mut self,
        launch: &Launch<'_>,
        prepare: impl FnOnce(&[*mut aclTensor], &mut Prepared) -> Result<i32, Absent>,
    ) -> Result<Kept, AclError> {
        let acl = self.session.acl;
        let tensors = launch.tensors.iter().map(|view| view.create(acl));
        let tensors: Vec<Tensor> = tensors.collect::<Result<_, _>>()?;
        let handles: Vec<_> = tensors.iter().map(Tensor::handle).collect();
        let mut prepared = Prepared::EMPTY;
        let answer = prepare(&handles, &mut prepared);
        self.preparations += 1;
        self.session
            .noted(crate::error::check(acl, launch.operator.name, answer))?;
        // Right after the first phase, or it is too late.
        let repeatable = call!(acl, meta.aclSetAclOpExecutorRepeatable(prepared.executor));
        self.session.noted(repeatable)?;
        Ok(Kept {
            acl,
            prepared,
            tensors,
            addresses: launch.tensors.iter().map(|view| view.address).collect(),
            last_use: self.launches,
        })
    }

    /// Launches an executor that serves once: of an operator that holds numbers of the host.
    ///
    /// # Errors
    /// When either phase refuses its arguments.
    pub fn launch_once(
        &mut self,
        operator: Operator,
        stream: aclrtStream,
        prepare: impl FnOnce(&mut Prepared) -> Result<i32, Absent>,
    ) -> Result<(), DeviceError> {
        let mut prepared = Prepared::EMPTY;
        let answer = prepare(&mut prepared);
        self.launches += 1;
        self.preparations += 1;
        let checked = crate::error::check(self.session.acl, operator.name, answer);
        self.session.noted(checked)?;
        self.run(operator, prepared, stream)
    }

    fn run(
        &mut self,
        operator: Operator,
        prepared: Prepared,
        stream: aclrtStream,
    ) -> Result<(), DeviceError> {
        let workspace = self.workspace(prepared.workspace as usize)?;
        // SAFETY: the executor is alive, its tensors lie in memory that lives as long as the device, and the workspace is as large
        // as the first phase asked and not freed before the stream was waited for.
        let answer = unsafe {
            (operator.run)(
                self.session.acl,
                pointer(workspace),
                prepared.workspace,
                prepared.executor,
                stream,
            )
        };
        let checked = crate::error::check(self.session.acl, operator.name, answer);
        Ok(self.session.noted(checked)?)
    }

    /// The address of a workspace of at least `bytes`.
    fn workspace(&mut self, bytes: usize) -> Result<Address, DeviceError> {
        if bytes == 0 {
            return Ok(0);
        }
        let room = self.workspace.as_ref().map_or(0, |region| region.bytes);
        if room < bytes {
            if self.has_graphs {
                self.outgrown.extend(self.workspace.take());
            } else {
                // Queued operators may still work in the old one.
                self.session.finish(self.session.compute)?;
                self.workspace = None;
            }
            let bytes = bytes.max(WORKSPACE).next_power_of_two();
            self.workspace = Some(Region::new(&self.session, "workspace", bytes)?);
        }
        Ok(self.workspace.as_ref().map_or(0, |region| region.address))
    }

    fn make_room(&mut self) {
        if self.kept.len() < KEPT {
            return;
        }
        let mut uses: Vec<u64> = self.kept.values().map(|kept| kept.last_use).collect();
        uses.sort_unstable();
        let oldest = uses[KEPT / 4];
        self.kept.retain(|_, kept| kept.last_use > oldest);
    }
}
