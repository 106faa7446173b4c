//! The lines that somebody types. Reading blocks, so it happens on a thread of its own, which ends with the process.

use crate::start_error::StartError;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};
use std::sync::mpsc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// An editor for one line after the other, with those of before at hand.
pub struct Lines {
    wanted: mpsc::Sender<()>,
    /// Holds one line at most: the next is read when it is wanted.
    typed: UnboundedReceiver<Result<String, ReadlineError>>,
}

impl Lines {
    /// Starts the thread; the terminal is taken only while a line is typed.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn open() -> Result<Self, StartError> {
        let (wanted, wants) = mpsc::channel();
        let (typing, typed) = unbounded_channel();
        let thread = std::thread::Builder::new().name("lines".to_owned());
        let started = thread.spawn(move || read(&wants, &typing));
        started.map_err(|error| unreadable(&error))?;
        Ok(Lines { wanted, typed })
    }

    /// The next line; `None` at the end of the input. Ctrl-C empties the line.
    ///
    /// # Errors
    /// When the terminal cannot be read.
    pub async fn next(&mut self) -> Result<Option<String>, StartError> {
        // The thread is there as long as this is; if it were not, there would be no line either.
        let _ = self.wanted.send(());
        match self.typed.recv().await {
            Some(Ok(line)) => Ok(Some(line)),
            Some(Err(ReadlineError::Interrupted | ReadlineError::Signal(_))) => {
                Ok(Some(String::new()))
            }
            Some(Err(ReadlineError::Eof)) | None => Ok(None),
            Some(Err(error)) => Err(unreadable(&error)),
        }
    }
}

fn read(wants: &mpsc::Receiver<()>, typing: &UnboundedSender<Result<String, ReadlineError>>) {
    let mut history = MemHistory::new();
    while wants.recv().is_ok() {
        if typing.send(read_line(&mut history)).is_err() {
            return;
        }
    }
}

/// Reads one line with an editor of its own: an editor keeps Ctrl-C to itself as long as it lives, and between two lines
/// Ctrl-C is to stop the answer.
fn read_line(history: &mut MemHistory) -> Result<String, ReadlineError> {
    let config = Config::builder().auto_add_history(true).build();
    let mut editor = Editor::<(), _>::with_history(config, std::mem::take(history))?;
    let line = editor.readline("> ");
    *history = std::mem::take(editor.history_mut());
    line
}

fn unreadable(error: &dyn std::fmt::Display) -> StartError {
    StartError::Other(format!("the terminal cannot be read: {error}"))
}
