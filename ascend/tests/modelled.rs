//! On a modelled 910B the host's work is hidden where steps are enqueued ahead, and graphs come near to what the device itself needs.

mod rig;

use rig::modelled::{Mode, Step, decoder, measure};
use rig::stand_in;

const STEPS: u32 = 4;
const BATCHES: [usize; 2] = [1, 128];

#[test]
fn the_host_hides_behind_the_device() {
    let stand_in = stand_in();
    let steps = |graphs, modes: &[Mode]| -> Vec<[Step; 2]> {
        let mut decoder = decoder(stand_in, graphs).expect("a decoder");
        let mut measured = |mode| {
            BATCHES
                .map(|batch| measure(stand_in, &mut decoder, mode, (batch, STEPS)).expect("steps"))
        };
        modes.iter().map(|mode| measured(*mode)).collect()
    };
    let single = steps(false, &[Mode::Eager, Mode::Pipelined]);
    let graphs = steps(true, &[Mode::Graph]);
    let (eager, pipelined, graph) = (single[0], single[1], graphs[0]);
    for (eager, (pipelined, graph)) in eager.iter().zip(pipelined.iter().zip(&graph)) {
        // Dispatch from task to task is left, and nothing of the host.
        let dispatch = 3.0 * pipelined.launches;
        assert!(pipelined.host > 2000.0, "{pipelined:?}");
        assert!(
            pipelined.whole < pipelined.device + dispatch + 100.0,
            "{pipelined:?}"
        );
        assert!(
            eager.whole > pipelined.whole + 200.0,
            "the turn at least: {eager:?}"
        );
        assert!(graph.over_device() < 0.1, "{graph:?}");
        assert!(graph.whole < pipelined.whole, "{graph:?} {pipelined:?}");
        assert!(graph.launches < eager.launches / 10.0, "{graph:?}");
    }
    stand_in.clean();
}
