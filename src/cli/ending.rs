//! What a signal does to a command that computes on the main thread and cannot be asked to stop: it ends the process.

use crate::exit::Exit;
use crate::signals::Signals;
use crate::start_error::StartError;

/// From now on a signal ends the process with its exit code, after `clear_up`.
///
/// # Errors
/// When the operating system refuses the signals or the thread.
pub fn at_signal(clear_up: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    let refused = |error: std::io::Error| StartError::Other(format!("signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(refused)?;
    // Here and not on the thread, so that no signal comes before.
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    let wait = move || {
        runtime.block_on(signals.next());
        clear_up();
        std::process::exit(i32::from(Exit::Signal as u8));
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(wait).map_err(refused)?;
    Ok(())
}
