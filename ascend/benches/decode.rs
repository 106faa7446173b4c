//! What decoding costs on a modelled 910B (`tests/rig/modelled.rs`): `cargo bench -p ropeteam-ascend --bench decode`.

#[path = "../tests/rig/mod.rs"]
mod rig;

use rig::modelled::{Mode, decoder, measure};
use rig::stand_in;
use ropeteam_device::DeviceError;

const BATCHES: [usize; 3] = [1, 32, 128];
const STEPS: u32 = 20;

fn main() -> Result<(), DeviceError> {
    let stand_in = stand_in();
    println!(
        "| batch | mode | launches | host µs | device µs | step µs | over the device | tokens/s |"
    );
    println!("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for mode in [Mode::Eager, Mode::Pipelined, Mode::Graph] {
        let mut decoder = decoder(stand_in, mode == Mode::Graph)?;
        for batch in BATCHES {
            let step = measure(stand_in, &mut decoder, mode, (batch, STEPS))?;
            println!(
                "| {batch} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} % | {:.0} |",
                format!("{mode:?}").to_lowercase(),
                step.launches,
                step.host,
                step.device,
                step.whole,
                100.0 * step.over_device(),
                batch as f64 * 1e6 / step.whole
            );
        }
    }
    stand_in.clean();
    Ok(())
}
