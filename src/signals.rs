//! The signals that ask the process to end.

use crate::start_error::StartError;

/// Waits for SIGTERM or SIGINT (Ctrl-C), one after the other.
pub struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Takes over both signals: from now on they no longer end the process by themselves.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn new() -> Result<Self, StartError> {
        #[cfg(unix)]
        use tokio::signal::unix::{SignalKind, signal};
        #[cfg(unix)]
        let listen =
            |kind| signal(kind).map_err(|error| StartError::Other(format!("signals: {error}")));
        Ok(Signals {
            #[cfg(unix)]
            terminate: listen(SignalKind::terminate())?,
            #[cfg(unix)]
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// The next signal's name.
    pub async fn next(&mut self) -> &'static str {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
        #[cfg(not(unix))]
        {
            // Without a handler there is nothing to wait for, so wait for ever.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            "Ctrl-C"
        }
    }
}
