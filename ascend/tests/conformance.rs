//! The device passes the conformance suite over the stand-in, which has nothing to say against how it does so.

mod rig;

use rig::stand_in;
use ropeteam_device::conformance::{check, check_stored};
use ropeteam_device::{Device, Float, Precision};

#[test]
fn the_device_conforms() {
    let stand_in = stand_in();
    let make = || -> Box<dyn Device> { Box::new(stand_in.open(0, Precision::Bf16, Float::Bf16)) };
    check(Precision::Bf16, &[&make]);
    stand_in.clean();
}

/// Weights that a file holds in int8 meet activations in int8, others are widened.
#[test]
fn quantised_weights_conform() {
    let stand_in = stand_in();
    for (number, float) in [(1, Float::Bf16), (2, Float::F16)] {
        let make =
            || -> Box<dyn Device> { Box::new(stand_in.open(number, Precision::Stored, float)) };
        check_stored(&[&make]);
    }
    stand_in.clean();
}
