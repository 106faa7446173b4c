//! The actors of Ropeteam: session, scheduler, device, supervisor, metrics and the bus between them and their observers.
//! They translate messages into calls of the pure state machines in `ropeteam-engine`. Embed them in any actix application
//! through [`Engine`].

pub mod generation;
