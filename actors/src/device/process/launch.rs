//! Starting a device's process, waiting for its end, killing it. A thread of its own starts the child and waits for it, so that no
//! zombie remains; it is also the thread with which the child has the system end it, should this process die.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};

/// A started process; it is killed when this is dropped.
pub(super) struct Launched {
    child: Arc<Mutex<Child>>,
    pid: u32,
}

impl Launched {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // Does nothing to one that was waited for: its number may be another's by now.
        let _ = lock(&self.child).kill();
    }
}

/// How a process ended.
pub(super) struct Ended {
    pub how: String,
    /// By SIGKILL, which no mistake of its own sends.
    pub killed: bool,
}

/// Starts `command` with the other end of the returned socket as its standard input. When it is gone, `on_end` learns how it ended.
///
/// # Errors
/// When the system has no socket, thread or process for it.
pub(super) fn launch(
    mut command: Command,
    on_end: impl FnOnce(Ended) + Send + 'static,
) -> io::Result<(Launched, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    command
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        // What a terminal or a supervisor sends to the server's group is the server's business.
        .process_group(0);
    let (tell, told) = sync_channel(1);
    let watch = move || {
        let spawned = command.spawn();
        // Holds their end of the socket open.
        drop(command);
        let child = match spawned {
            Ok(child) => Arc::new(Mutex::new(child)),
            Err(error) => return drop(tell.send(Err(error))),
        };
        // Nobody listens if the device was abandoned meanwhile; then this drops the process.
        let pid = lock(&child).id();
        let launched = Launched {
            child: child.clone(),
            pid,
        };
        drop(tell.send(Ok(launched)));
        on_end(match wait(&child, pid) {
            Ok(status) => Ended::from(status),
            Err(error) => Ended {
                how: error.to_string(),
                killed: false,
            },
        });
    };
    std::thread::Builder::new()
        .name("device-process".to_owned())
        .spawn(watch)?;
    let launched = told.recv().unwrap_or_else(|_| {
        let lost = "the thread that starts it ended";
        Err(io::Error::other(lost))
    })?;
    Ok((launched, ours))
}

/// Waits without the lock, then takes the status with it, so that nobody kills a number that is free again.
fn wait(child: &Mutex<Child>, pid: u32) -> io::Result<ExitStatus> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(error) = waitid(WaitId::Pid(pid), options) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    lock(child).wait()
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        let kill = rustix::process::Signal::KILL.as_raw();
        Ended {
            how,
            killed: status.signal() == Some(kill),
        }
    }
}

fn lock(child: &Mutex<Child>) -> std::sync::MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn launched(program: &str) -> (Launched, UnixStream, std::sync::mpsc::Receiver<Ended>) {
        let (tell, told) = channel();
        let on_end = move |how| tell.send(how).expect("the test listens");
        let (launched, socket) = launch(Command::new(program), on_end).expect("it starts");
        socket.set_nonblocking(false).expect("a socket");
        (launched, socket, told)
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_process_ends_with_its_socket_and_is_waited_for() {
        let (launched, socket, told) = launched("cat");
        drop(socket);
        assert_eq!(
            told.recv_timeout(PATIENCE).expect("its end").how,
            "exited with 0"
        );
        let gone = !std::path::Path::new(&format!("/proc/{}", launched.pid())).exists();
        assert!(gone, "no zombie");
    }

    #[test]
    fn a_process_that_is_dropped_is_killed() {
        let (launched, mut socket, told) = launched("cat");
        socket.write_all(b"still here").expect("it reads");
        drop(launched);
        let ended = told.recv_timeout(PATIENCE).expect("its end");
        assert_eq!(ended.how, "was ended by signal 9");
        assert!(ended.killed);
        let mut rest = Vec::new();
        // Their end is closed: with nothing, or with a reset for what was not read.
        let _ = socket.read_to_end(&mut rest);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let started = launch(Command::new("/no/such/program"), |_| {});
        assert_eq!(
            started.err().map(|e| e.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }
}
