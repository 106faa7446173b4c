//! Whose form of the TGI dialect the routes speak where versions differ.

/// Whose form it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TGI 0.9.4's.
    V0_9_4,
    /// That of TGI 2 and 3.
    Later,
    /// MindIE's of 0.9.4.
    MindIe,
}
