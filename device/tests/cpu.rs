//! The CPU device passes the conformance suite with every instruction set of this machine.

use ropeteam_device::conformance::check;
use ropeteam_device::cpu::Isa;
use ropeteam_device::{CpuDevice, CpuOptions, Device, KvPrecision, Precision};

fn conforms(precision: Precision) {
    conforms_with(precision, KvPrecision::ByWeights);
}

fn conforms_with(precision: Precision, kv: KvPrecision) {
    for isa in Isa::all() {
        println!("{precision:?} with {}", isa.name());
        let with_threads = |threads: usize| {
            move || -> Box<dyn Device> {
                let options = CpuOptions {
                    precision,
                    kv,
                    threads,
                };
                Box::new(CpuDevice::with_isa(options, isa))
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
fn the_cpu_conforms_with_keys_and_values_in_int8() {
    conforms_with(Precision::F32, KvPrecision::Int8);
    conforms_with(Precision::Bf16, KvPrecision::Int8);
}

#[test]
fn the_cpu_says_what_it_is() {
    let device = CpuDevice::new(CpuOptions {
        precision: Precision::Bf16,
        kv: KvPrecision::default(),
        threads: 2,
    });
    let info = device.info();
    assert_eq!(info.kind, "cpu");
    assert!(
        info.name.contains("2 threads") && info.free_bytes > 0,
        "{info:?}"
    );
}
