//! Ropeteam, the server: what a client or an operator touches. Configuration, command line, HTTP, and the wiring of the
//! crates below. The binary `ropeteam` is `cli::main`; examples and tests use the parts.

pub mod bench;
pub mod cli;
pub mod config;
pub mod devices;
pub mod doctor;
pub mod exit;
pub mod http;
pub mod listen;
pub mod logging;
pub mod recorder;
pub mod serve;
pub mod signals;
pub mod start_error;
pub mod tls;
pub mod wiring;

/// Version, in a release with the commit it was built from if that is known.
pub const VERSION: &str = env!("SERVER_VERSION");
