//! Pure serving logic: what a request is, which sequence runs when and where, and how the next token is chosen.
//! No actor, thread, clock or I/O lives here; `now` comes in as an argument and every decision is a plain state machine,
//! so that the server, the simulator and the property tests run the same code.

pub mod batching;
pub mod blocks;
pub mod constraint;
pub mod credits;
pub mod device_core;
mod drain_speed;
pub mod executor;
pub mod fairness;
pub mod ids;
pub mod kv;
pub mod ledger;
pub mod observe;
pub mod pace;
pub mod placement;
pub mod plan;
pub mod prefix;
pub mod queue;
pub mod request;
pub mod sampling;
pub mod scheduler;
pub mod speculate;
pub mod stop;
pub mod supervision;
pub mod text;
pub mod time;
pub mod work;
