//! How long a task would take on the chip: what its bytes and its arithmetic need, whichever is more, and the dispatch. Peaks from
//! the chips' platform files; the shares of them that real runs reach, the dispatch and what calls cost the host are estimates.

use crate::settings::Settings;

/// Microseconds of modelled time.
pub type Microseconds = f64;

/// Share of peak arithmetic that products reach.
const REACHED_FLOPS: f64 = 0.45;
/// Share of peak bandwidth that large reads reach.
const REACHED_BYTES: f64 = 0.65;
/// From one task to the next on the device.
const DISPATCH: Microseconds = 3.0;

/// From one task of a graph to the next, without the host or a queue between them.
const GRAPH_DISPATCH: Microseconds = 0.5;

/// What a task has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that it moves.
    pub bytes: u64,
    /// Multiplications and additions.
    pub flops: u64,
    /// Whether a graph starts it.
    pub in_graph: bool,
}

/// What a call costs the host.
pub fn call_time(call: &str) -> Microseconds {
    match call {
        "aclmdlRIExecuteAsync" => 100.0,
        "aclrtSynchronizeStream"
        | "aclrtSynchronizeStreamWithTimeout"
        | "aclrtSynchronizeEvent"
        | "aclrtSynchronizeEventWithTimeout"
        | "aclrtMemcpy" => 10.0,
        "aclrtMemcpyAsync" | "aclrtMemsetAsync" => 4.0,
        "aclrtRecordEvent" | "aclrtStreamWaitEvent" => 2.0,
        _ if call.ends_with("GetWorkspaceSize") => 12.0,
        _ if call.starts_with("aclnn") => 6.0,
        _ => 0.2,
    }
}

/// From a task's start to the next one's: dispatch, and the work itself.
pub fn task_time(settings: &Settings, cost: Cost) -> Microseconds {
    let dispatch = if cost.in_graph {
        GRAPH_DISPATCH
    } else {
        DISPATCH
    };
    dispatch + work_time(settings, cost)
}

/// Time of the work itself.
pub fn work_time(settings: &Settings, cost: Cost) -> Microseconds {
    let Cost { bytes, flops, .. } = cost;
    // (16-bit operations per microsecond, bytes per microsecond)
    let (peak_flops, peak_bytes) = match settings.is_310p() {
        true => (69.5e6, 204e3),
        false => (295e6, 1.6e6),
    };
    let arithmetic = flops as f64 / (REACHED_FLOPS * peak_flops);
    let transfer = bytes as f64 / (REACHED_BYTES * peak_bytes);
    arithmetic.max(transfer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_takes_what_its_bytes_or_its_arithmetic_need() {
        let settings = Settings::default();
        let time = |bytes, flops| {
            let in_graph = false;
            task_time(
                &settings,
                Cost {
                    bytes,
                    flops,
                    in_graph,
                },
            )
        };
        assert_eq!(time(0, 0), DISPATCH);
        let gigabyte = time(1_000_000_000, 0);
        assert!((900.0..1000.0).contains(&gigabyte), "{gigabyte} µs");
        assert!(time(1000, 1_000_000_000_000) > 1000.0);
    }

    #[test]
    fn first_phases_cost_the_host_most() {
        let first = call_time("aclnnMatmulGetWorkspaceSize");
        assert!(first > call_time("aclnnMatmul"));
        assert!(call_time("aclnnMatmul") > call_time("aclrtGetDevice"));
    }
}
