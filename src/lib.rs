//! Ropeteam, the server: what a client or an operator touches. Configuration, command line, HTTP, and the wiring of the
//! crates below. The binary `ropeteam` is `cli::main`; examples and tests use the parts.

pub mod cli;
pub mod config;
pub mod listen;
pub mod logging;
pub mod start_error;
