//! Shutting down: admit nothing more, wait for what was admitted, end the rest when the time is up.

use super::Scheduler;
use crate::mailing::by_session;
use crate::messages::{Drain, DrainOutcome, Progress};
use actix::{AsyncContext, Context, Handler, ResponseFuture};
use ropeteam_engine::ids::SeqId;
use ropeteam_engine::observe::Event;
use tokio::sync::oneshot;

impl Scheduler {
    pub(super) fn answer_drains(&mut self, cut_off: usize) {
        for waiter in self.drains.drain(..) {
            // Who asked may have left meanwhile.
            let _ = waiter.send(DrainOutcome { cut_off });
        }
    }

    /// The time of a drain is up: what is left ends now.
    fn cut_off(&mut self, ctx: &mut Context<Self>) {
        let mut left: Vec<SeqId> = self.sessions.keys().copied().collect();
        left.sort_unstable();
        let sessions = left
            .iter()
            .filter_map(|seq| Some((self.sessions.get(seq)?.clone(), *seq)));
        for (session, _) in by_session(sessions) {
            // Bound: once per session.
            session.do_send(Progress::ShutDown);
        }
        for &seq in &left {
            self.cancel(seq);
        }
        self.answer_drains(left.len() + self.astray);
        self.settle(ctx);
    }
}

impl Handler<Drain> for Scheduler {
    type Result = ResponseFuture<DrainOutcome>;

    fn handle(&mut self, Drain { within }: Drain, ctx: &mut Context<Self>) -> Self::Result {
        if !self.core.is_draining() {
            self.core.drain();
            self.update_state(|state| state.draining = true);
            self.parts.bus.publish(Event::Draining {
                at: self.parts.clock.now(),
            });
        }
        let (waiter, answer) = oneshot::channel();
        self.drains.push(waiter);
        ctx.run_later(within, Scheduler::cut_off);
        self.settle(ctx);
        // Without an answer the scheduler is gone, and with it all it held.
        Box::pin(async move { answer.await.unwrap_or_default() })
    }
}
