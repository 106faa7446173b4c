//! The host's time: counted per thread in the model, or the machine's own, in which calls and waits then take as long as the model
//! says.

use crate::caller::Caller;
use crate::timing::Microseconds;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Waits shorter than this are spun.
const SPIN: Microseconds = 200.0;

/// Time of the machine since the first question.
pub fn real() -> Microseconds {
    BEGAN.elapsed().as_secs_f64() * 1e6
}

/// The calling thread's time.
pub fn now(caller: &Caller, is_real: bool) -> Microseconds {
    match is_real {
        true => real(),
        false => caller.now,
    }
}

/// Lets the calling thread reach a time.
pub fn reach(caller: &mut Caller, is_real: bool, time: Microseconds) {
    if !is_real {
        caller.now = caller.now.max(time);
        return;
    }
    let left = time - real();
    if left > SPIN {
        std::thread::sleep(Duration::from_secs_f64((left - SPIN) / 1e6));
    }
    while real() < time {
        std::hint::spin_loop();
    }
}
