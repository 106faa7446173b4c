//! What a session does with the news of its sequences: tokens, ends, refusals and the loss of a device.

use super::Session;
use super::choice::ChoiceTimes;
use super::ending::{assign_error, refusal_error};
use crate::generation::{GenerateEvent, RequestError};
use crate::messages::{Astray, Cancel, Progress};
use actix::{ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};
use ropeteam_engine::device_core::{AssignError, SeqUpdate};
use ropeteam_engine::executor::DeviceFault;
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::observe::Event;
use ropeteam_engine::request::FinishReason;
use ropeteam_engine::scheduler::{Refusal, Submission};
use ropeteam_engine::work::Work;
use std::sync::Arc;

impl Handler<Progress> for Session {
    type Result = ();

    fn handle(&mut self, progress: Progress, ctx: &mut Context<Self>) {
        if !matches!(progress, Progress::ShutDown) {
            self.admitted();
        }
        match progress {
            Progress::Step { device, epoch, .. } if self.is_ended(device, epoch) => {}
            Progress::Step {
                device, updates, ..
            } => {
                self.device = Some(device);
                for update in updates {
                    self.update(update, device, ctx);
                }
            }
            Progress::Interrupted {
                seqs,
                device,
                epoch,
                fault,
                astray,
            } => {
                self.life_ended(device, epoch);
                self.interrupted(&seqs, &fault, &astray, ctx);
            }
            Progress::Rejected { seq, why } => self.rejected(seq, why, ctx),
            Progress::Refused { seq, why } => self.refused(seq, why, ctx),
            Progress::ShutDown => self.fail(RequestError::Draining, ctx),
        }
    }
}

impl Session {
    fn is_ended(&self, device: DeviceId, epoch: Epoch) -> bool {
        self.ended_lives
            .iter()
            .any(|&(d, last)| d == device && epoch <= last)
    }

    fn life_ended(&mut self, device: DeviceId, epoch: Epoch) {
        match self.ended_lives.iter_mut().find(|(d, _)| *d == device) {
            Some((_, last)) => *last = epoch.max(*last),
            None => self.ended_lives.push((device, epoch)),
        }
    }

    fn update(&mut self, mut update: SeqUpdate, device: DeviceId, ctx: &mut Context<Self>) {
        let Some(i) = self
            .sequences
            .as_ref()
            .and_then(|s| s.open_choice(update.seq))
        else {
            return;
        };
        let prompt_logprobs = update.prompt_logprobs.take();
        // What a device brings may be quicker than the scheduler's word that the request is admitted.
        let brings = !update.tokens.is_empty() || update.finish.is_some();
        if prompt_logprobs.is_some() || brings {
            self.announce(prompt_logprobs);
        }
        let Some(sequences) = &mut self.sequences else {
            return;
        };
        let choice = &mut sequences.choices[i];
        let (before, seq) = (choice.times, choice.seq);
        let off_device = update.finish.is_some();
        let now = self.shared.clock.now();
        let brought = choice.take(update, &*self.shared.codec, &self.shared.eos_ids, now);
        self.publish_firsts(i, before, device);
        if let Some(tokens) = brought.tokens {
            if !self.outlet.has_room() {
                return self.overrun(i, &tokens.text, ctx);
            }
            self.outlet.send(GenerateEvent::Tokens(tokens));
        }
        if let Some(reason) = brought.end {
            if !off_device {
                // Bound: once per sequence, when the session ends it.
                self.shared.scheduler.do_send(Cancel { seq });
            }
            self.end_choice(i, reason, "");
            self.leave_if_over(ctx);
        }
    }

    fn publish_firsts(&self, i: usize, before: ChoiceTimes, device: DeviceId) {
        let Some(sequences) = &self.sequences else {
            return;
        };
        let choice = &sequences.choices[i];
        let seq = choice.seq;
        if let (None, Some(at)) = (before.started, choice.times.started) {
            let (queued, cached_tokens) = (at.since(self.arrived), choice.cached_tokens);
            self.shared.bus.publish(Event::Scheduled {
                seq,
                device,
                queued,
                cached_tokens,
            });
        }
        if let (None, Some(at)) = (before.first_token, choice.times.first_token) {
            let since_arrival = at.since(self.arrived);
            self.shared
                .bus
                .publish(Event::FirstToken { seq, since_arrival });
        }
    }

    /// The client does not read: its request ends here, its text without a hole.
    fn overrun(&mut self, i: usize, undelivered: &str, ctx: &mut Context<Self>) {
        tracing::warn!(request = %self.request.id, "request cancelled, its client does not read");
        self.cancel_open();
        self.end_choice(i, FinishReason::Cancelled, undelivered);
        self.end_all(FinishReason::Cancelled, ctx);
    }

    fn interrupted(
        &mut self,
        seqs: &[SeqId],
        fault: &DeviceFault,
        astray: &Arc<Astray>,
        ctx: &mut Context<Self>,
    ) {
        let limit = self.shared.config.max_interruptions;
        let mut works = Vec::new();
        for &seq in seqs {
            let Some(sequences) = &mut self.sequences else {
                return;
            };
            let Some(i) = sequences.open_choice(seq) else {
                continue;
            };
            match sequences.interrupted(i, fault.kind, limit) {
                Some((work, suspected)) => {
                    let tokens = work.len_tokens() as u32;
                    self.shared.bus.publish(Event::Replayed { seq, tokens });
                    match suspected {
                        true => self.submit_in_turn(work, astray.clone(), ctx),
                        false => works.push(work),
                    }
                }
                None => {
                    tracing::warn!(request = %self.request.id, %seq, %fault, "sequence given up");
                    self.announce(None);
                    self.end_choice(i, FinishReason::DeviceError, "");
                }
            }
        }
        if !works.is_empty() {
            self.submit(works, Submission::Again, Some(astray.clone()), ctx);
        }
        self.leave_if_over(ctx);
    }

    /// Submits a suspected sequence when the one before it has got a token or is gone: then the one that kills devices is alone with its
    /// next death, and the others have got a token before, however long a restart takes.
    fn submit_in_turn(&mut self, work: Work, astray: Arc<Astray>, ctx: &mut Context<Self>) {
        let turn = self.shared.suspects.clone().acquire_owned();
        ctx.spawn(turn.into_actor(self).map(|turn, act, ctx| {
            let sequences = act.sequences.as_mut();
            let open = sequences.and_then(|s| Some((s.open_choice(work.seq)?, s)));
            if let Some((i, sequences)) = open {
                sequences.choices[i].turn = turn.ok();
                act.submit(vec![work], Submission::Again, Some(astray), ctx);
            }
        }));
    }

    /// The device cannot hold the sequence. After a replay on a smaller device that is its length limit.
    fn rejected(&mut self, seq: SeqId, why: AssignError, ctx: &mut Context<Self>) {
        let Some(sequences) = &self.sequences else {
            return;
        };
        let Some(i) = sequences.open_choice(seq) else {
            return;
        };
        if sequences.choices[i].output.is_empty() {
            return self.fail(assign_error(why), ctx);
        }
        self.end_choice(i, FinishReason::Length, "");
        self.leave_if_over(ctx);
    }

    /// A waiting sequence will not be served. If a device had it before, the loss of that device is the cause.
    pub(super) fn refused(&mut self, seq: SeqId, why: Refusal, ctx: &mut Context<Self>) {
        let Some(sequences) = &self.sequences else {
            return;
        };
        let Some(i) = sequences.open_choice(seq) else {
            return;
        };
        let choice = &sequences.choices[i];
        if choice.interruptions == 0 && choice.times.started.is_none() {
            return self.fail(refusal_error(why), ctx);
        }
        self.announce(None);
        self.end_choice(i, FinishReason::DeviceError, "");
        self.leave_if_over(ctx);
    }
}
