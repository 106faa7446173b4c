//! A device that is cut off and begins again on the memory that it left.

use crate::toy::{Ledger, ToyDevice, capacity, solo, work};
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::DeviceCore;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::ledger::{BlockLedger, KnownBlock};

#[test]
fn a_sequence_goes_on_from_its_last_full_block() {
    let (limits, capacity, ledger) = (BatchLimits::default(), capacity(32, 4), Ledger::default());
    let mut device = ToyDevice::new(limits.clone(), capacity.clone(), true);
    ledger.hand_to(&mut device.core);
    let work = work(1, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 30);
    device.core.assign(work.clone()).expect("it fits");
    let mut output = Vec::new();
    for _ in 0..8 {
        let updates = device.step().expect("there is work");
        output.extend(updates.into_iter().flat_map(|u| u.tokens).map(|t| t.id));
    }
    let (mut device, taken_over) = device.cut_off(limits, capacity, &ledger);
    // Nine tokens and seven of the eight that came: the last one is only chosen.
    assert_eq!((output.len(), taken_over), (8, 4));
    let mut again = work.clone();
    again.output = output;
    device.core.assign(again).expect("it fits");
    let mut first = true;
    let check = |plan: &ropeteam_engine::plan::StepPlan| {
        assert_eq!(plan.tokens(), 1, "all else is there");
    };
    let mut rest = Vec::new();
    while let Some(updates) = match std::mem::take(&mut first) {
        true => device.step_with(check, |_| ()),
        false => device.step(),
    } {
        rest.extend(updates.into_iter().flat_map(|u| u.tokens).map(|t| t.id));
    }
    let expected: Vec<TokenId> = solo(&work).tokens.iter().map(|t| t.id).collect();
    assert_eq!(rest, expected[8..]);
}

#[test]
fn entries_that_are_not_whole_or_lack_their_parents_are_struck() {
    let (limits, capacity, ledger) = (BatchLimits::default(), capacity(32, 4), Ledger::default());
    let mut device = ToyDevice::new(limits.clone(), capacity.clone(), true);
    ledger.hand_to(&mut device.core);
    let prompt: Vec<u32> = (0..22).collect();
    device.core.assign(work(1, &prompt, 1)).expect("it fits");
    device.run();
    let written = ledger.entries();
    assert_eq!(written.len(), 5);
    let third = written.iter().position(|known| {
        let second = written
            .iter()
            .find(|other| Some(other.block) == known.parent);
        second.is_some_and(|second| {
            written
                .iter()
                .any(|first| Some(first.block) == second.parent && first.parent.is_none())
        })
    });
    let third = third.expect("a chain");
    let adopt = |spoil: &dyn Fn(&mut KnownBlock)| {
        let mut ledger = ledger.copy();
        let mut spoilt = written[third].clone();
        ledger.strike(spoilt.block);
        spoil(&mut spoilt);
        ledger.enter(&spoilt);
        let mut core = DeviceCore::new(limits.clone(), capacity.clone(), true);
        let taken_over = ledger.hand_to(&mut core);
        core.check().expect("the invariants hold");
        assert_eq!(ledger.entries().len(), taken_over);
        taken_over
    };
    assert_eq!(adopt(&|_| ()), 5);
    // The third and what is behind it.
    assert_eq!(adopt(&|known| known.tokens[1] = TokenId(23)), 2);
    assert_eq!(adopt(&|known| known.salt = 7), 2);
    assert_eq!(adopt(&|known| known.hash ^= 1), 2);
    assert_eq!(adopt(&|known| known.parent = Some(known.block)), 2);
    assert_eq!(adopt(&|known| known.parent = None), 2);
}
