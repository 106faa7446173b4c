//! What commands print on standard output. A reader that has gone away is no failure; a disk that is full is one.

use crate::start_error::StartError;
use std::io::{ErrorKind, Write};

/// Writes `text` out at once.
///
/// # Errors
/// When it cannot be written.
pub fn print(text: &str) -> Result<(), StartError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(StartError::Other(format!(
            "standard output cannot be written: {error}"
        ))),
        _ => Ok(()),
    }
}
