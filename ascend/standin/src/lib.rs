//! A stand-in for libascendcl, libnnopbase and the operator libraries: the same C symbols, computed on the CPU, lazily and in stream
//! order. It is stricter than the real thing: whatever the official contract forbids gets the documented code where there is one,
//! and is remembered as a violation in any case, so that a test fails even when the caller ignores codes. What it does not offer is
//! an absent symbol.
//!
//! `world` is the state and its rules, `export` the C functions, one file per part of the interface. How it is set up stands in
//! `settings.rs`.

#![allow(non_snake_case)]

mod caller;
mod clock;
mod entry;
mod export;
mod fail;
mod fault;
mod host_function;
mod host_time;
mod memory;
mod objects;
mod operators;
mod owners;
mod settings;
mod shadow;
mod task;
mod tensor;
mod timing;
mod violations;
mod visible;
mod world;
