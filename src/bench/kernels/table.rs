//! A kernel's figures and how they are shown.

use super::roofline::{Bound, Limits, Work};
use serde::Serialize;

/// A kernel at one size, as measured.
#[derive(Clone, Debug)]
pub struct Case {
    /// Which.
    pub kernel: String,
    /// At what size, rows aside.
    pub shape: String,
    /// Rows.
    pub rows: usize,
    /// Its median time.
    pub seconds: f64,
    /// What it asks of the machine.
    pub work: Work,
    /// Bytes that memory gave per second just before.
    pub bytes_per_s: f64,
}

/// The same beside the machine's limits.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    kernel: String,
    shape: String,
    rows: usize,
    microseconds: f64,
    gigabytes_per_s: f64,
    gigaoperations_per_s: f64,
    bound: Bound,
    share_of_limit: f64,
}

impl Line {
    /// Works out the share.
    pub fn of(case: &Case, limits: &Limits) -> Line {
        let (least, bound) = limits.least_time(case.work, case.bytes_per_s);
        Line {
            kernel: case.kernel.clone(),
            shape: case.shape.clone(),
            rows: case.rows,
            microseconds: case.seconds * 1e6,
            gigabytes_per_s: case.work.bytes / case.seconds / 1e9,
            gigaoperations_per_s: case.work.operations / case.seconds / 1e9,
            bound,
            share_of_limit: least / case.seconds,
        }
    }

    /// Its share in few letters.
    fn share(&self) -> String {
        let mark = match self.bound {
            Bound::Memory => "m",
            Bound::Arithmetic => " ",
        };
        format!("{}: {:.0}%{mark}", self.rows, self.share_of_limit * 100.0)
    }
}

/// The limits, then the kernels.
pub fn text(machine: &str, limits: &Limits, lines: &[Line]) -> String {
    let giga = |rate: f64| rate / 1e9;
    let mut text = format!(
        "machine     {machine}\nlimits      read {:.1} GB/s ({:.1} by one thread), f32 {:.0} Gop/s, bf16 {:.0} Gop/s, int8 {:.0} Gop/s\n",
        giga(limits.bytes_per_s),
        giga(limits.one_thread_bytes_per_s),
        giga(limits.f32_per_s),
        giga(limits.bf16_per_s),
        giga(limits.int8_per_s),
    );
    if cfg!(debug_assertions) {
        text.push_str("note        this build checks its own assumptions, which costs products half their speed: measure a release build\n");
    }
    text.push_str("\nrows: share of the limit that bounds, m if that is the memory's (as it was just before)\n");
    for same in lines.chunk_by(|a, b| (&a.kernel, &a.shape) == (&b.kernel, &b.shape)) {
        let (kernel, shape) = (&same[0].kernel, &same[0].shape);
        let mut row = format!("{kernel:<24}{shape:<28}");
        for line in same {
            row.push_str(&format!("{:>12}", line.share()));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_kernels::limits::Arithmetic;

    #[test]
    fn the_share_is_the_least_time_over_the_time_taken() {
        let limits = Limits {
            one_thread_bytes_per_s: 1e9,
            bytes_per_s: 2e9,
            f32_per_s: 4e9,
            bf16_per_s: 8e9,
            int8_per_s: 16e9,
        };
        let case = |rows: usize, seconds| Case {
            kernel: "product".into(),
            shape: "[1, 1]".into(),
            rows,
            seconds,
            bytes_per_s: 2e9,
            work: Work {
                bytes: 2e9,
                operations: rows as f64 * 8e9,
                arithmetic: Arithmetic::Bf16,
            },
        };
        let lines = [case(1, 2.0), case(4, 5.0)].map(|case| Line::of(&case, &limits));
        assert_eq!(
            (lines[0].share_of_limit, lines[0].bound),
            (0.5, Bound::Memory)
        );
        assert_eq!(
            (lines[1].share_of_limit, lines[1].bound),
            (0.8, Bound::Arithmetic)
        );
        let text = text("a machine", &limits, &lines);
        assert!(text.contains("read 2.0 GB/s"), "{text}");
        assert!(text.contains("1: 50%m     4: 80%\n"), "{text}");
    }
}
