//! Why a call does not answer 0.

use std::fmt::Display;

/// A call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fail {
    /// The code that the caller gets.
    pub code: i32,
    /// What `aclGetRecentErrMsg` says.
    pub text: String,
    /// Whether the caller broke the contract, as against a device that fails or is full.
    pub mistake: bool,
}

/// The caller broke the contract.
pub fn mistake(code: i32, text: impl Display) -> Fail {
    Fail {
        code,
        text: text.to_string(),
        mistake: true,
    }
}

/// The caller did nothing wrong.
pub fn failure(code: i32, text: impl Display) -> Fail {
    Fail {
        code,
        text: text.to_string(),
        mistake: false,
    }
}
