//! The calling thread as the world sees it, and how far a call that waits has come.

use crate::task::Id;
use crate::timing::Microseconds;
use std::ffi::CString;

/// What a thread carries from call to call.
#[derive(Debug, Default)]
pub struct Caller {
    /// Its current context.
    pub context: Option<Id>,
    /// The executor that its last first phase made, until the next call that has to do with executors.
    pub prepared: Option<Id>,
    /// What its last failure says, until read.
    pub message: Option<CString>,
    /// The thread's time in the model, where that does not pass really.
    pub now: Microseconds,
    /// What was read last; it must stay valid until the next call.
    pub read: Option<CString>,
}

/// How far a call that waits has come.
pub enum Wait {
    /// It is over.
    Done,
    /// A task never ends.
    Hung,
}
