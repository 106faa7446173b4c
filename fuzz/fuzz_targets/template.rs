#![no_main]
//! One of the targets: see `src/lib.rs`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropeteam_fuzz::run("template", bytes));
