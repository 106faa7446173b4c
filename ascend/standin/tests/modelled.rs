//! Time and order as settings want them: the host's time counted or really taken, devices that only take their time, and streams
//! that are mixed by a die.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use ropeteam_acl_sys::types::*;
use std::time::Instant;

const MIB: usize = 1 << 20;
const H2D: aclrtMemcpyKind = ACL_MEMCPY_HOST_TO_DEVICE;
const D2D: aclrtMemcpyKind = ACL_MEMCPY_DEVICE_TO_DEVICE;

/// Asks for eight copies of 256 MiB and waits for them; microseconds of the model until they were asked for, and until they were done.
fn copies(rig: &Rig) -> (f64, f64) {
    let stream = rig.stream();
    let (from, to) = (rig.device(256 * MIB), rig.device(256 * MIB));
    let began = rig.microseconds(false);
    for _ in 0..8 {
        assert_eq!(rig.copy(to, from, 256 * MIB, D2D, stream), 0);
    }
    let asked = rig.microseconds(false);
    rig.finish(stream);
    (asked - began, rig.microseconds(false) - began)
}

#[test]
fn the_host_goes_on_while_the_device_works_and_waits_until_it_is_done() {
    let rig = Rig::new("compute=no");
    let (asked, done) = copies(&rig);
    let busy = rig.microseconds(true);
    assert!((32.0..40.0).contains(&asked), "8 calls of 4 µs: {asked}");
    assert!((4000.0..4300.0).contains(&busy), "4 GiB: {busy}");
    assert!(done > busy && done < busy + 60.0, "{done} {busy}");
    rig.clean();
}

#[test]
fn a_real_clock_takes_the_time_of_the_model() {
    let rig = Rig::new("compute=no;clock=real");
    let since = Instant::now();
    let (asked, done) = copies(&rig);
    let real = since.elapsed().as_secs_f64() * 1e6;
    assert!(done >= 4000.0 && done <= real, "{done} {real}");
    assert!(asked < done);
    rig.clean();
}

#[test]
fn a_device_that_only_takes_its_time_gives_zeros() {
    let rig = Rig::new("compute=no;memory_mib=65536");
    let memory = rig.device(40 << 30);
    assert_eq!(rig.read(memory, 64), [0; 64]);
    rig.clean();
}

/// Two streams without order between them; whether the second found what the first one wrote.
fn raced(seed: u64) -> bool {
    let rig = Rig::new(&format!("schedule=random:{seed}"));
    let (first, second) = (rig.stream(), rig.stream());
    let (host, memory, copy) = (
        rig.pinned_with(&[1; 64]),
        rig.device_with(&[0; 64]),
        rig.device(64),
    );
    assert_eq!(rig.copy(memory, host, 64, H2D, first), 0);
    assert_eq!(rig.copy(copy, memory, 64, D2D, second), 0);
    rig.finish(second);
    let found = rig.read(copy, 64);
    rig.finish(first);
    rig.caught("nothing orders this and aclrtMemcpyAsync");
    found == [1; 64]
}

#[test]
fn a_die_mixes_streams_and_a_seed_repeats_it() {
    let results: Vec<bool> = (0..12).map(raced).collect();
    assert!(
        results.contains(&true) && results.contains(&false),
        "{results:?}"
    );
    assert_eq!(results, (0..12).map(raced).collect::<Vec<bool>>());
}

#[test]
fn an_event_orders_mixed_streams() {
    for seed in 0..12 {
        let rig = Rig::new(&format!("schedule=random:{seed}"));
        let (first, second, event) = (rig.stream(), rig.stream(), rig.event());
        let (host, memory, copy) = (rig.pinned_with(&[1; 64]), rig.device(64), rig.device(64));
        assert_eq!(rig.copy(memory, host, 64, H2D, first), 0);
        ok!(rig.runtime.aclrtRecordEvent(event, first));
        ok!(rig.runtime.aclrtStreamWaitEvent(second, event));
        assert_eq!(rig.copy(copy, memory, 64, D2D, second), 0);
        rig.finish(second);
        assert_eq!(rig.read(copy, 64), [1; 64]);
        rig.clean();
    }
}
