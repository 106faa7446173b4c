//! The device: what it holds, and how it begins and ends. `methods` are those of `Device`; which aclnn operators carry them out stand by
//! what they work on: `products` (and all that is not named here), `attention` over the `cache`, `reads` and `highest` for what comes
//! back. Weights come in by `weights` and `four_bits`, the rows of a step by `rows`; `graphs` starts whole steps. What operators want of
//! their arguments is held by how `buffers` are made.

mod attention;
mod buffers;
mod cache;
mod fit;
mod four_bits;
mod graphs;
mod highest;
mod methods;
mod options;
mod products;
mod reads;
mod rows;
mod weights;

use crate::launch::Launcher;
use crate::library::library;
use crate::memory::{Arena, Growing};
use crate::pinned::{Answers, Inbox, Outbox, Staging};
use crate::session::Session;
use crate::survey::chip_name;
use crate::tensor::One;
use buffers::Buffers;
use cache::Cache;
pub use fit::{NEEDED, NEEDED_BY_INT8, lacking};
use fit::{check_arithmetic, check_chip, check_functions, check_number};
use graphs::Graphs;
pub use options::{AscendOptions, STEPS_AHEAD};
use ropeteam_acl_sys::types::*;
use ropeteam_device::{DeviceError, Float};
use rows::StepInputs;
use std::rc::Rc;
use weights::Weights;

/// Tokens of a block are a multiple of this: legal for every way of the attention operator.
const BLOCK_STEP: usize = 128;
/// Elements of a head are a multiple of this, and at most so many.
const HEAD_STEP: usize = 16;
const HEAD_MAX: usize = 512;
/// Bytes left to workspaces, tables and what the runtime takes as it goes.
const RESERVE: u64 = 512 << 20;

/// An NPU with its memory.
///
/// Fields are dropped in this order: what uses the streams first, the session, through its last owner, in the end.
pub struct AclDevice {
    graphs: Graphs,
    answers: Answers,
    launcher: Launcher,
    one: One,
    outbox: Outbox,
    inbox: Inbox,
    staging: Staging,
    inputs: StepInputs,
    weights: Weights,
    buffers: Buffers,
    cache: Option<Cache>,
    rotated: Option<attention::Rotated>,
    scratch: Scratch,
    arena: Arena,
    options: AscendOptions,
    name: String,
    session: Rc<Session>,
}

/// Buffers between the operators of one method.
#[derive(Default)]
struct Scratch {
    /// What norms give beside their result, f32.
    rstd: Growing,
    /// Normed query and key heads.
    heads: [Growing; 2],
    /// Rotated query and key heads, and values in one piece.
    query: Growing,
    key: Growing,
    value: Growing,
    /// Gated activations on the way into a product.
    gated: Growing,
    /// Rows in int8, and the factor of each.
    rounded: [Growing; 2],
    /// The highest logit of each row, and its column.
    best: [Growing; 2],
    /// The highest columns of rows: logits and columns.
    highest: [Growing; 2],
}

impl AclDevice {
    /// Takes the device for this thread.
    ///
    /// # Errors
    /// `Unavailable` when CANN, the chip or the arithmetic is not what is needed; else what the device answers.
    pub fn open(options: AscendOptions) -> Result<Self, DeviceError> {
        check_arithmetic(&options)?;
        let acl = library(&options.search)?;
        let patience = options
            .patience_ms
            .map_or(-1, |ms| i32::try_from(ms.max(1)).unwrap_or(i32::MAX));
        check_functions(acl, false)?;
        check_number(acl, options.device)?;
        let session = Rc::new(Session::open(acl, options.device as i32, patience)?);
        let chip = chip_name(acl).unwrap_or_else(|| "an unnamed Ascend chip".to_owned());
        check_chip(&chip)?;
        let steps = options.steps_ahead + 1;
        Ok(Self {
            graphs: Graphs::new(&session, options.graphs),
            answers: Answers::new(&session, steps),
            launcher: Launcher::new(&session),
            one: One::new(acl)?,
            // One more, so that the next step never waits for the buffer of the one that the host is about to wait for.
            outbox: Outbox::new(&session, steps + 1),
            inbox: Inbox::new(&session),
            staging: Staging::new(&session),
            inputs: StepInputs::default(),
            weights: Weights::default(),
            buffers: Buffers::default(),
            cache: None,
            rotated: None,
            scratch: Scratch::default(),
            arena: Arena::new(&session),
            name: format!("{chip}, device {}", options.device),
            options,
            session,
        })
    }

    /// Launches and first phases of operators since the device was opened.
    pub fn launches(&self) -> (u64, u64) {
        (self.launcher.launches, self.launcher.preparations)
    }

    /// The type of activations.
    fn float(&self) -> aclDataType {
        match self.options.activations {
            Float::F16 => ACL_FLOAT16,
            _ => ACL_BF16,
        }
    }
}

impl Drop for AclDevice {
    /// Nothing may be freed that queued work still uses.
    fn drop(&mut self) {
        self.graphs.abandon();
        self.session.quiesce();
    }
}
