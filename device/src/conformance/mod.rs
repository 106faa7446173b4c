//! What every device must do: each operator on odd and ordinary shapes against its plain reference, the same bits for a row
//! wherever it stands, and an error instead of a panic for calls that do not fit. For the tests of device crates.

mod attention;
mod matrices;
mod numbers;
mod refusals;
mod rowwise;
mod session;
mod stored;

use crate::{Device, Precision};

/// A device to be checked, made anew for each group of checks.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Device>;

/// Runs the whole suite. The devices that `makes` build must agree with the reference, and with each other bit for bit: they are
/// the same device with other numbers of threads, say.
///
/// # Panics
/// At the first check that fails, with the operator, the shape and the largest difference.
pub fn check(precision: Precision, makes: &[Make<'_>]) {
    matrices::check(precision, makes);
    rowwise::check(precision, makes);
    attention::check(precision, makes);
    if precision == Precision::Stored {
        stored::check(makes);
    }
    for make in makes {
        refusals::check(make().as_mut());
    }
}

/// The checks of weights that files hold quantised, for devices on which the whole suite takes long.
///
/// # Panics
/// As `check`.
pub fn check_stored(makes: &[Make<'_>]) {
    stored::check(makes);
}
