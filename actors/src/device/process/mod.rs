//! A device whose inside runs in a process of its own: a crash of a driver, a `kill -9` or a hung call costs that device and
//! nothing else. Both processes speak [`Order`] and [`News`] in frames over a socket pair whose other end the child inherits as its
//! standard input, so nobody else can speak there.
//!
//! | file | what |
//! | --- | --- |
//! | `frame.rs` | a message as bytes: its length first, bounded |
//! | `launch.rs` | starting the child, waiting for its end, killing it |
//! | `serve.rs` | the child's side |
//! | `late.rs` | constraints that the child makes anew from their source |
//! | `kept.rs` | the KV cache, which outlives a child that was killed |
//!
//! Neither side outlives the other: the child ends when the socket does and when its parent dies; the parent kills the child with
//! the life and waits for it.

mod frame;
mod kept;
mod late;
mod launch;
mod serve;

pub(crate) use kept::Legacy;
pub use late::ReadConstraint;
pub use serve::{Rebuilt, ServeError, Wanted, serve};

use super::inside::{News, Order};
use super::{Device, DeviceSetup, Place};
use crate::config::ProcessSpec;
use actix::fut::wrap_future;
use actix::{AsyncContext, Context, Handler, Message, SpawnHandle, StreamHandler};
use frame::{FrameError, Frames};
use kept::Kept;
use launch::{Ended, Launched};
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::AssignError;
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::ids::{DeviceId, Epoch};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

/// A killed process is gone after milliseconds, unless a driver holds it in the kernel: then its end is told without it.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// Of a process that ends by itself, the socket's end and its own come one after the other.
const TOGETHER_WITHIN: Duration = Duration::from_secs(1);

/// A child without work is asked so often whether it is there; one that does not answer is stuck, as one whose step does not end.
const PING_EVERY: Duration = Duration::from_secs(1);

/// Reads bytes as either side would, for fuzzing.
#[doc(hidden)]
pub fn read_frames(bytes: &[u8]) {
    let mut orders = bytes;
    if frame::read_greeting(&mut orders).is_ok() {
        let mut news = orders;
        while let Ok(Some(_)) = frame::read::<Order>(&mut orders) {}
        while let Ok(Some(_)) = frame::read::<News>(&mut news) {}
    }
}

/// The first thing that the child is told: what it shall be.
#[derive(Debug, Serialize, Deserialize)]
struct Begin {
    device: DeviceId,
    epoch: Epoch,
    batching: BatchLimits,
    prefix_cache: bool,
    /// The start of the engine's clock, on the machine's monotonic clock.
    clock_start: Duration,
    /// What the executor is built from; whoever made the `ProcessSpec` knows how to read it.
    recipe: Arc<[u8]>,
}

/// An order on the wire.
#[derive(Debug, Serialize, Deserialize)]
struct Sent<O> {
    order: O,
    /// The source of the work's constraint.
    constraint: Option<Arc<str>>,
}

/// The child, seen from its parent.
pub(super) struct Process {
    launched: Launched,
    /// Frames to be written. Bound: the device's credits, which the scheduler spends.
    frames: mpsc::UnboundedSender<Vec<u8>>,
    io: [SpawnHandle; 2],
    /// Nothing more comes from it.
    closed: bool,
    /// How it ended.
    ended: Option<Ended>,
    kept: Option<Kept>,
}

impl Process {
    /// Starts the child. It answers with `News::Up` or `News::Down`.
    pub fn start(
        setup: &DeviceSetup,
        spec: &ProcessSpec,
        ctx: &mut Context<Device>,
    ) -> Result<Self, DeviceFault> {
        let actor = ctx.address();
        // Bound: once per life.
        let on_end = move |ended| actor.do_send(ProcessEnded(ended));
        let (launched, socket) =
            launch::launch((spec.command)(), on_end).map_err(|error| cannot_start(&error))?;
        let kept = setup.legacy.take();
        // One that has ended already is told as such.
        let _ = kept::greet(&socket, kept.as_ref());
        let socket = UnixStream::from_std(socket).map_err(|error| cannot_start(&error))?;
        let (reader, writer) = socket.into_split();
        let (frames, to_write) = mpsc::unbounded_channel();
        let io = [
            ctx.spawn(wrap_future(write_all(writer, to_write))),
            ctx.add_stream(Frames::new(reader).into_stream()),
        ];
        let process = Process {
            launched,
            frames,
            io,
            closed: false,
            ended: None,
            kept,
        };
        let begin = frame::encode(&Begin {
            device: setup.device,
            epoch: setup.epoch,
            batching: setup.batching.clone(),
            prefix_cache: setup.prefix_cache,
            clock_start: setup.clock.start_on_monotonic(),
            recipe: spec.recipe.clone(),
        });
        process.push(begin.map_err(|error| cannot_start(&error))?);
        let (device, epoch, pid) = (setup.device, setup.epoch, process.launched.pid());
        tracing::info!(%device, %epoch, pid, "device process started");
        Ok(process)
    }

    /// Sends an order. News that need no child come at once.
    pub fn take(&mut self, order: Order) -> Result<Option<News>, DeviceFault> {
        let mut constraint = None;
        if let Order::Assign(work) = &order
            && let Some(wanted) = &work.constraint
        {
            constraint = wanted.source();
            if constraint.is_none() {
                let (seq, why) = (work.seq, AssignError::Constraint);
                return Ok(Some(News::Rejected { seq, why }));
            }
        }
        let sent = frame::encode(&Sent { order, constraint });
        self.push(sent.map_err(|error| ended(&error))?);
        Ok(None)
    }

    /// A socket that is closed by now is told by its reader.
    fn push(&self, bytes: Vec<u8>) {
        let _ = self.frames.send(bytes);
    }
}

/// Reaped: the process is gone, and this is how it ended.
#[derive(Message)]
#[rtype(result = "()")]
struct ProcessEnded(Ended);

impl Device {
    /// Begins to ask the process whether it is there.
    pub(super) fn begin_pings(&mut self, ctx: &mut Context<Self>) {
        if !matches!(self.place, Some(Place::Process(_))) {
            return;
        }
        ctx.run_interval(PING_EVERY, |act, ctx| {
            if !act.setup.pulse.read().busy {
                // Until the answer, which is that it is idle.
                act.setup.pulse.beat(act.setup.clock.now());
                act.survive(ctx, FaultKind::Panic, |act, ctx| {
                    act.order(Order::Ping, ctx)
                });
            }
        });
    }

    /// Kills the process, and tells the life's end when it is gone.
    pub(super) fn end_process(
        &mut self,
        process: Process,
        fault: DeviceFault,
        ctx: &mut Context<Self>,
    ) {
        for io in process.io {
            ctx.cancel_future(io);
        }
        if process.ended.is_some() {
            return self.tell_end(fault, ctx);
        }
        self.ending = Some(fault);
        drop(process);
        ctx.run_later(GONE_WITHIN, |act, ctx| {
            tracing::error!(device = %act.setup.device, "device process cannot be killed and is left behind");
            act.process_gone(ctx);
        });
    }

    fn process_gone(&mut self, ctx: &mut Context<Self>) {
        if let Some(fault) = self.ending.take() {
            self.tell_end(fault, ctx);
        }
    }

    /// The process closed its socket or ended; both come together, and what it said before counts first.
    fn process_ends(&mut self, ctx: &mut Context<Self>) {
        let Some(Place::Process(process)) = &mut self.place else {
            return;
        };
        if let (true, Some(end)) = (process.closed, &process.ended) {
            let mut fault = ended(&end.how);
            if end.killed {
                fault.kind = FaultKind::Killed;
            }
            if let (true, Some(kept)) = (end.killed, process.kept.take()) {
                self.setup.legacy.leave(kept);
            }
            return self.die(fault, ctx);
        }
        ctx.run_later(TOGETHER_WITHIN, |act, ctx| {
            act.die(ended(&"its socket closed"), ctx);
        });
    }
}

impl StreamHandler<Result<News, FrameError>> for Device {
    fn handle(&mut self, news: Result<News, FrameError>, ctx: &mut Context<Self>) {
        self.survive(ctx, FaultKind::Panic, |act, ctx| {
            act.hear(news.map_err(|error| ended(&error))?, ctx)
        });
    }

    fn finished(&mut self, ctx: &mut Context<Self>) {
        if let Some(Place::Process(process)) = &mut self.place {
            process.closed = true;
            self.process_ends(ctx);
        }
    }
}

impl Handler<ProcessEnded> for Device {
    type Result = ();

    fn handle(&mut self, ProcessEnded(ended): ProcessEnded, ctx: &mut Context<Self>) {
        match &mut self.place {
            Some(Place::Process(process)) => {
                process.ended = Some(ended);
                self.process_ends(ctx);
            }
            _ => self.process_gone(ctx),
        }
    }
}

fn cannot_start(why: &dyn std::fmt::Display) -> DeviceFault {
    DeviceFault {
        kind: FaultKind::Start,
        detail: format!("the device's process cannot be started: {why}"),
    }
}

fn ended(how: &dyn std::fmt::Display) -> DeviceFault {
    DeviceFault {
        kind: FaultKind::Process,
        detail: format!("the device's process: {how}"),
    }
}

/// Writes frames until the device lets go of the process. That it cannot write is told by the reader.
async fn write_all(mut socket: OwnedWriteHalf, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if socket.write_all(&frame).await.is_err() {
            return;
        }
    }
}
