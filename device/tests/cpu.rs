//! The CPU device passes the conformance suite with every instruction set of this machine.

use ropeteam_device::conformance::check;
use ropeteam_device::cpu::Isa;
use ropeteam_device::{CpuDevice, CpuOptions, Device, Precision};

fn conforms(precision: Precision) {
    for isa in Isa::all() {
        println!("{precision:?} with {}", isa.name());
        let with_threads = |threads: usize| {
            move || -> Box<dyn Device> {
                Box::new(CpuDevice::with_isa(CpuOptions { precision, threads }, isa))
            }
        };
        check(
            precision,
            &[&with_threads(1), &with_threads(2), &with_threads(5)],
        );
    }
}

#[test]
fn the_cpu_conforms_in_f32() {
    conforms(Precision::F32);
}

#[test]
fn the_cpu_conforms_in_bf16() {
    conforms(Precision::Bf16);
}

#[test]
fn the_cpu_conforms_with_stored_weights() {
    conforms(Precision::Stored);
}

#[test]
fn the_cpu_conforms_in_int8() {
    conforms(Precision::Int8);
}

#[test]
fn the_cpu_conforms_in_int4() {
    conforms(Precision::Int4);
}

#[test]
fn the_cpu_says_what_it_is() {
    let device = CpuDevice::new(CpuOptions {
        precision: Precision::Bf16,
        threads: 2,
    });
    let info = device.info();
    assert_eq!(info.kind, "cpu");
    assert!(
        info.name.contains("2 threads") && info.free_bytes > 0,
        "{info:?}"
    );
}
