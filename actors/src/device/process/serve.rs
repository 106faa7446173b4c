//! The child's side: takes orders from its standard input's socket, turns the circle, sends news back. It ends with the life, with
//! the socket, or with its parent, whichever is first.

use super::super::inside::{Inside, News, Order, panic_fault};
use super::frame::{self, FrameError};
use super::kept::{self, LedgerFile};
use super::late::{LateConstraints, ReadConstraint};
use super::{Begin, Sent};
use crate::clock::Clock;
use ropeteam_engine::executor::{DeviceFault, FaultKind, StepExecutor};
use ropeteam_engine::ids::{DeviceId, Epoch};
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Exit code of a child whose parent is gone: nobody reads it.
const PARENT_GONE: i32 = 0;

/// What a child makes of its recipe.
pub struct Rebuilt {
    /// Runs the steps.
    pub executor: Box<dyn StepExecutor>,
    /// Makes constraints from their sources.
    pub constraints: ReadConstraint,
    /// The KV cache is in the file that was given for it.
    pub keeps_cache: bool,
}

/// What a child is to build, and for which life.
pub struct Wanted<'a> {
    /// The recipe of the device's `ProcessSpec`.
    pub recipe: &'a [u8],
    /// Which device.
    pub device: DeviceId,
    /// Which of its lives.
    pub epoch: Epoch,
    /// Memory that outlives the process, for the KV cache of a device that can have it there. It may hold that of a life before.
    pub cache: Option<File>,
}

/// Why a process cannot serve a device.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was not started by an engine.
    #[error(
        "this command is for the server itself: it starts device processes with a socket as their standard input"
    )]
    NoParent,
    /// The parent cannot be understood, or the socket failed.
    #[error("the server {0}")]
    Wire(String),
}

impl From<FrameError> for ServeError {
    fn from(error: FrameError) -> Self {
        ServeError::Wire(error.to_string())
    }
}

/// Serves the device that the parent at the other end of standard input wants; returns when its life is over. `build` makes the
/// executor.
///
/// # Errors
/// When nobody there speaks as a parent should. Faults of the device are told to the parent.
pub fn serve(
    build: impl FnOnce(Wanted<'_>) -> Result<Rebuilt, DeviceFault>,
) -> Result<(), ServeError> {
    let socket = parent_socket()?;
    let wire = |error: io::Error| ServeError::Wire(error.to_string());
    let (greeting, kept) = kept::greeted(&socket).map_err(wire)?;
    frame::check_greeting(greeting)?;
    let mut news = Line {
        socket: socket.try_clone().map_err(wire)?,
        frame: Vec::new(),
    };
    let mut orders = BufReader::new(socket);
    news.socket.write_all(frame::GREETING).map_err(wire)?;
    let Some(begin) = frame::read::<Begin>(&mut orders)? else {
        return Ok(());
    };
    let orders = receive(orders).map_err(wire)?;
    let life = || live(begin, kept, build, &orders, &mut news);
    let fault = match catch_unwind(AssertUnwindSafe(life)) {
        Ok(Ok(Gone)) => return Ok(()),
        Ok(Err(fault)) => fault,
        Err(payload) => panic_fault(FaultKind::Panic, &*payload),
    };
    // Nobody listens when the parent is gone.
    let _ = news.send(&News::Down(fault));
    Ok(())
}

/// The inherited end of the socket pair. Whose other end it is, is asked all the same.
fn parent_socket() -> Result<UnixStream, ServeError> {
    use rustix::net::sockopt::socket_peercred;
    let inherited = io::stdin().as_fd().try_clone_to_owned();
    let socket: OwnedFd = inherited.map_err(|_| ServeError::NoParent)?;
    let owner = socket_peercred(&socket).map_err(|_| ServeError::NoParent)?;
    if owner.uid != rustix::process::geteuid() {
        return Err(ServeError::NoParent);
    }
    // Kills this process with the thread that started it, should even the end of the socket not get through.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let socket = UnixStream::from(socket);
    socket
        .set_nonblocking(false)
        .map_err(|_| ServeError::NoParent)?;
    Ok(socket)
}

/// Reads orders on a thread of its own, which ends the process with the socket, whatever the step does. Bound: the device's credits.
fn receive(mut from: BufReader<UnixStream>) -> io::Result<Receiver<Sent<Order>>> {
    let (orders, queue) = channel();
    std::thread::Builder::new()
        .name("orders".to_owned())
        .spawn(move || {
            loop {
                match frame::read(&mut from) {
                    Ok(Some(order)) => drop(orders.send(order)),
                    Ok(None) => std::process::exit(PARENT_GONE),
                    Err(error) => {
                        tracing::error!(%error, "the server cannot be understood");
                        std::process::exit(1);
                    }
                }
            }
        })?;
    Ok(queue)
}

/// The parent is gone: there is nobody to serve.
struct Gone;

fn live(
    begin: Begin,
    kept: Option<[File; 2]>,
    build: impl FnOnce(Wanted<'_>) -> Result<Rebuilt, DeviceFault>,
    orders: &Receiver<Sent<Order>>,
    news: &mut Line,
) -> Result<Gone, DeviceFault> {
    let (cache, ledger) = kept.map(|[cache, ledger]| (cache, ledger)).unzip();
    let wanted = Wanted {
        recipe: &begin.recipe,
        device: begin.device,
        epoch: begin.epoch,
        cache,
    };
    let started = catch_unwind(AssertUnwindSafe(|| build(wanted)));
    let rebuilt =
        started.unwrap_or_else(|payload| Err(panic_fault(FaultKind::Start, &*payload)))?;
    let constraints = LateConstraints::start(rebuilt.constraints).map_err(|error| DeviceFault {
        kind: FaultKind::Start,
        detail: error.to_string(),
    })?;
    let clock = Clock::started_on_monotonic(begin.clock_start);
    let mut inside = Inside::new(rebuilt.executor, begin.batching, begin.prefix_cache, clock);
    if let (true, Some(ledger)) = (rebuilt.keeps_cache, ledger) {
        take_over(&mut inside, ledger);
    }
    if news.send(&News::Up(inside.capacity())).is_err() {
        return Ok(Gone);
    }
    loop {
        let told = match next(orders, inside.is_due()) {
            Next::Order(Sent {
                mut order,
                constraint,
            }) => {
                if let (Order::Assign(work), Some(source)) = (&mut order, constraint) {
                    work.constraint = Some(constraints.get(source));
                }
                inside.take(order)?
            }
            Next::Turn => Some(inside.turn()?),
            Next::Gone => return Ok(Gone),
        };
        if told.is_some_and(|told| news.send(&told).is_err()) {
            return Ok(Gone);
        }
    }
}

/// Has the inside go on with the blocks of the life before, and write down its own.
fn take_over(inside: &mut Inside, ledger: File) {
    match LedgerFile::open(ledger, &inside.capacity()) {
        Ok((known, ledger)) => {
            let blocks = inside.adopt(known, Box::new(ledger));
            if blocks > 0 {
                tracing::info!(blocks, "the KV cache of the life before was taken over");
            }
        }
        Err(error) => tracing::warn!(%error, "nothing of the KV cache will outlive this process"),
    }
}

enum Next {
    Order(Sent<Order>),
    Turn,
    Gone,
}

/// All orders that have come, then a turn; without one due, the next order.
fn next(orders: &Receiver<Sent<Order>>, due: bool) -> Next {
    match due {
        true => match orders.try_recv() {
            Ok(order) => Next::Order(order),
            Err(TryRecvError::Empty) => Next::Turn,
            Err(TryRecvError::Disconnected) => Next::Gone,
        },
        false => orders.recv().map_or(Next::Gone, Next::Order),
    }
}

/// The way to the parent.
struct Line {
    socket: UnixStream,
    /// Room that is used again.
    frame: Vec<u8>,
}

impl Line {
    /// Sends news; waits while the parent is behind.
    fn send(&mut self, news: &News) -> Result<(), FrameError> {
        frame::encode_into(news, &mut self.frame)?;
        Ok(self.socket.write_all(&self.frame)?)
    }
}
