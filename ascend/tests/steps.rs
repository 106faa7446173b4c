//! Whole steps: operator by operator, enqueued ahead with the ids on the device, and as graphs. The ids are the same, nothing is held
//! against us, and what a step costs the host is counted.

mod rig;

use rig::decoder::{Decoder, SMALL};
use rig::stand_in;
use ropeteam_ascend::AscendOptions;
use ropeteam_device::{Float, Ids, Precision};

const ROWS: usize = SMALL.rows;
const LAYERS: u64 = SMALL.layers as u64;
/// Embedding, norm, and at the end norm, head and best columns.
const AROUND: u64 = 5;
/// Norm, product, rotation, copy, cache, attention, product, norm, product, gate and product; the first layer's norm is counted above.
const PER_LAYER: u64 = 11;
/// Operators of a step, one after the other.
const OPERATORS: u64 = AROUND + PER_LAYER * LAYERS - 1;

fn options(number: u32, graphs: bool) -> AscendOptions {
    AscendOptions {
        graphs,
        ..stand_in().options(number, Precision::Bf16, Float::Bf16)
    }
}

fn decoder(number: u32, graphs: bool) -> Decoder {
    Decoder::new(options(number, graphs), SMALL).expect("a decoder")
}

/// The ids of `steps` steps of all rows, each beginning with its own number; `ahead`: each step is enqueued before the one before was
/// collected.
fn ids(decoder: &mut Decoder, steps: u32, ahead: bool) -> Vec<u32> {
    let mut all = Vec::new();
    let mut last: Vec<u32> = (0..ROWS as u32).collect();
    let mut pending = None;
    for step in 0..steps {
        let rows = decoder.rows(ROWS, step);
        let ids = match ahead && step > 0 {
            true => Ids::Found(ROWS),
            false => Ids::Given(&last),
        };
        let answer = decoder.enqueue(ids, &rows).expect("a step");
        let due = match ahead {
            true => pending.replace(answer),
            false => Some(answer),
        };
        if let Some(answer) = due {
            last = decoder.collect(answer).expect("ids");
            all.extend_from_slice(&last);
        }
    }
    if let Some(answer) = pending {
        all.extend(decoder.collect(answer).expect("ids"));
    }
    all
}

#[test]
fn steps_ahead_and_graphs_give_the_same_ids() {
    let stand_in = stand_in();
    const STEPS: u32 = 131;
    let expected = ids(&mut decoder(0, false), STEPS, false);
    assert!(expected.iter().any(|id| *id != expected[0]), "{expected:?}");
    stand_in.clean();
    for (number, graphs, ahead) in [(1, false, true), (2, true, false), (3, true, true)] {
        let mut decoder = decoder(number, graphs);
        let found = ids(&mut decoder, STEPS, ahead);
        assert_eq!(found, expected, "graphs {graphs}, ahead {ahead}");
        let before = decoder.device.launches().0;
        let rows = decoder.rows(ROWS, 0);
        decoder
            .enqueue(Ids::Given(&[0; ROWS]), &rows)
            .expect("a step");
        let launched = decoder.device.launches().0 - before;
        // A graph, the numbers of its attentions and the best columns; or every operator.
        let wanted = match graphs {
            true => 1 + LAYERS + 1,
            false => OPERATORS,
        };
        assert_eq!(launched, wanted, "graphs {graphs}");
        drop(decoder);
        stand_in.clean();
    }
    for seed in 0..4 {
        stand_in.configure(&format!("schedule=random:{seed}"));
        let found = ids(&mut decoder(4, true), 12, true);
        assert_eq!(found, expected[..12 * ROWS], "seed {seed}");
        stand_in.clean();
    }
    stand_in.configure("schedule=lazy");
}

#[test]
fn a_step_prepares_only_its_attentions_again() {
    let mut decoder = decoder(5, false);
    let mut step = |position| {
        let before = decoder.device.launches();
        let rows = decoder.rows(ROWS, position);
        let answer = decoder.enqueue(Ids::Given(&[1; ROWS]), &rows);
        decoder.collect(answer.expect("a step")).expect("ids");
        let after = decoder.device.launches();
        (after.0 - before.0, after.1 - before.1)
    };
    // One layer's operators serve all layers, but for the first norm and product, the head and what looks at its rows.
    assert_eq!(step(0).0, OPERATORS);
    assert_eq!(step(1), (OPERATORS, LAYERS));
    assert_eq!(step(2), (OPERATORS, LAYERS));
}
