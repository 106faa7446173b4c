//! What the server tells about itself: the typed events of the bus, and every metric's name, unit and meaning.
//! Events are published per step and per request, never per token.

mod event;
pub mod metric;

pub use event::{CancelStage, Event, FinishedRequest, Outcome, RefusedReason, StepDone};
