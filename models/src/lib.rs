//! TODO: written next.
