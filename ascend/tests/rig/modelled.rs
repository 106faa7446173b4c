//! What a decode step costs on a 910B as the stand-in models it (`ascend/standin/src/timing.rs`). Nothing is computed; tasks take the time
//! that their bytes and their arithmetic need, calls cost the host what its table says, and between two steps the host is busy for `TURN`:
//! it chooses tokens, tells them and plans. The clock is counted, so the figures are the same on every machine.

use super::StandIn;
use super::decoder::{CONTEXT, Decoder, QWEN2_7B};
use ropeteam_ascend::AscendOptions;
use ropeteam_device::{DeviceError, Float, Ids, Precision};

/// Microseconds of the host between two steps.
const TURN: f64 = 200.0;
/// Steps before the measured ones, in which executors are prepared and graphs captured.
const WARM: u32 = 6;

/// How steps follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Operator by operator, each step after the last one was collected.
    Eager,
    /// Operator by operator, each step behind the one that is computed.
    Pipelined,
    /// So, and as graphs.
    Graph,
}

/// Per step, in microseconds but for the first.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Operators and graphs launched.
    pub launches: f64,
    /// The host at work.
    pub host: f64,
    /// The device at work, dispatch left out: no step can be shorter.
    pub device: f64,
    /// From one step's end to the next one's.
    pub whole: f64,
}

impl Step {
    /// How much longer it takes than the device's work.
    pub fn over_device(&self) -> f64 {
        self.whole / self.device - 1.0
    }
}

/// Qwen2-7B in bf16 on the stand-in's first device.
pub fn decoder(stand_in: &StandIn, graphs: bool) -> Result<Decoder, DeviceError> {
    stand_in.configure("violations=say;memory_mib=65536;compute=no");
    let options = AscendOptions {
        graphs,
        ..stand_in.options(0, Precision::Bf16, Float::Bf16)
    };
    Decoder::hollow(options, QWEN2_7B)
}

/// Measures `steps` steps of `batch` sequences.
pub fn measure(
    stand_in: &StandIn,
    decoder: &mut Decoder,
    mode: Mode,
    (batch, steps): (usize, u32),
) -> Result<Step, DeviceError> {
    let counts = |decoder: &Decoder| {
        let (host, busy) = (stand_in.microseconds(false), stand_in.microseconds(true));
        [decoder.device.launches().0 as f64, host, busy]
    };
    let (mut pending, mut waited) = (None, 0.0);
    let mut began = counts(decoder);
    for step in 0..WARM + steps {
        if step == WARM {
            (began, waited) = (counts(decoder), 0.0);
        }
        let rows = decoder.rows(batch, CONTEXT + step);
        let given = vec![0; batch];
        let ids = match mode == Mode::Eager || step == 0 {
            true => Ids::Given(&given),
            false => Ids::Found(batch),
        };
        let answer = decoder.enqueue(ids, &rows)?;
        let due = match mode {
            Mode::Eager => Some(answer),
            _ => pending.replace(answer),
        };
        if let Some(answer) = due {
            let since = stand_in.microseconds(false);
            decoder.collect(answer)?;
            waited += stand_in.microseconds(false) - since;
            stand_in.spend(TURN);
        }
    }
    let ended = counts(decoder);
    let [launches, whole, device] = [0, 1, 2].map(|i| (ended[i] - began[i]) / f64::from(steps));
    Ok(Step {
        launches,
        host: whole - waited / f64::from(steps),
        device,
        whole,
    })
}
