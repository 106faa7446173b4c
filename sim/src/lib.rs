//! Simulated devices and faults: the same engine and actors as in production, without weights and, where wanted, under a virtual
//! clock. `executor` is a device whose tokens are a pure function of the sequence, `faults` wraps any executor, `cost` gives
//! time to steps, `codec` is the tokenizer that goes with it.

pub mod codec;
pub mod cost;
pub mod dice;
pub mod executor;
pub mod faults;
pub mod ring1;
