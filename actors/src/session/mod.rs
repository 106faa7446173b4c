//! The actor of one request. It owns the truth of its sequences and the client's channel, so that the loss of a device costs the
//! client a pause and nothing else. What a device needs of a sequence is in `sequences`, a choice's text and end in `choice`,
//! tokenising and checks in `prompt`, what is told about the end in `ending`.

mod choice;
pub(crate) mod context;
mod ending;
pub(crate) mod outlet;
mod progress;
mod prompt;
mod sequences;
#[cfg(test)]
mod tests;
mod view;

use crate::generation::{GenerateEvent, PromptLogprob, RequestError, Started};
use crate::messages::{Astray, Cancel, EndRequest, Submit};
use crate::requests::{Entry, Listed};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};
use context::{Place, SessionContext};
use ending::{End, refusal_error};
use outlet::Outlet;
use prompt::{Prepared, prepared};
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::observe::Event;
use ropeteam_engine::request::{FinishReason, GenerateRequest};
use ropeteam_engine::scheduler::Submission;
use ropeteam_engine::time::Time;
use ropeteam_engine::work::{PromptTokenLogprob, Work};
use sequences::{Sequences, SequencesParts};
use std::sync::Arc;
use std::time::Duration;

/// One request.
pub(crate) struct Session {
    shared: Arc<SessionContext>,
    request: Arc<GenerateRequest>,
    outlet: Outlet,
    arrived: Time,
    start_within: Option<Duration>,
    /// Known once the prompt is tokenised.
    sequences: Option<Sequences>,
    /// It was told that the sequences are in the queue.
    admitted: bool,
    /// The client has had `Started`.
    announced: bool,
    /// The client has had its last event.
    over: bool,
    /// Per device the last life that is known to be over.
    ended_lives: Vec<(DeviceId, Epoch)>,
    /// Its place among the bounded number of sessions.
    _place: Place,
    /// Where it is listed, once it has an address.
    listed: Option<Listed>,
    /// The device that last told of it.
    device: Option<DeviceId>,
}

/// What a session is made of.
pub(crate) struct SessionParts {
    pub shared: Arc<SessionContext>,
    pub request: GenerateRequest,
    pub outlet: Outlet,
    pub arrived: Time,
    /// How long it may wait for a device, where it says so itself.
    pub start_within: Option<Duration>,
    pub place: Place,
}

impl Session {
    pub fn new(parts: SessionParts) -> Self {
        Session {
            shared: parts.shared,
            request: Arc::new(parts.request),
            outlet: parts.outlet,
            arrived: parts.arrived,
            start_within: parts.start_within,
            sequences: None,
            admitted: false,
            announced: false,
            over: false,
            ended_lives: Vec::new(),
            _place: parts.place,
            listed: None,
            device: None,
        }
    }

    fn prepare(&self, ctx: &mut Context<Self>) {
        let prepared = prepared(self.shared.clone(), self.request.clone());
        ctx.spawn(prepared.into_actor(self).map(|outcome, act, ctx| {
            match outcome.and_then(|prepared| act.begin(prepared)) {
                Ok(works) => act.submit(works, Submission::New, None, ctx),
                Err(error) => act.fail(error, ctx),
            }
        }));
    }

    /// How long its sequences may wait for a device: nobody waits in the queue beyond the request's own end.
    fn patience(&self) -> Option<Duration> {
        let own = self.request.timeout.into_iter().chain(self.start_within);
        own.chain(self.shared.live().queue_timeout).min()
    }

    fn begin(&mut self, prepared: Prepared) -> Result<Vec<Work>, RequestError> {
        let shared = &self.shared;
        let sequences = Sequences::new(SequencesParts {
            request: self.request.clone(),
            prepared,
            codec: &*shared.codec,
            eos_ids: &shared.eos_ids,
            first: shared.take_seqs(self.request.choices),
            arrived: self.arrived,
            queue_timeout: self.patience(),
        })?;
        let works = sequences.first_works();
        self.sequences = Some(sequences);
        Ok(works)
    }

    fn submit(
        &mut self,
        works: Vec<Work>,
        how: Submission,
        astray: Option<Arc<Astray>>,
        ctx: &mut Context<Self>,
    ) {
        let session = ctx.address().recipient();
        let seqs: Vec<SeqId> = works.iter().map(|work| work.seq).collect();
        let reply = self.shared.scheduler.send(Submit {
            works,
            how,
            session,
        });
        let verdict = reply.into_actor(self).map(move |reply, act, ctx| {
            // The scheduler has them again, or refused them.
            drop(astray);
            match (reply, how) {
                (Ok(Ok(())), Submission::New) => act.admitted(),
                (Ok(Ok(())), Submission::Again) => {}
                (Ok(Err(why)), Submission::New) => act.fail(refusal_error(why), ctx),
                (Ok(Err(why)), Submission::Again) => {
                    for seq in seqs {
                        act.refused(seq, why.clone(), ctx);
                    }
                }
                (Err(_), _) => act.fail(RequestError::Device("the engine has stopped".into()), ctx),
            }
        });
        ctx.spawn(verdict);
    }

    /// Tells that the sequences are in the queue, once: when the scheduler says so, or with the first progress if that is read before.
    fn admitted(&mut self) {
        let Some(sequences) = &self.sequences else {
            return;
        };
        if std::mem::replace(&mut self.admitted, true) {
            return;
        }
        self.shared.bus.publish(Event::Admitted {
            request: self.request.id.as_str().into(),
            seqs: sequences.choices.iter().map(|c| c.seq).collect(),
            prompt_tokens: sequences.prompt.len() as u32,
            tenant: self.request.tenant.as_str().into(),
        });
        // Log-probabilities of the prompt are part of `Started`; it waits for them.
        if self.request.prompt_logprobs.is_none() {
            self.announce(None);
        }
    }

    /// Sends `Started`, once.
    fn announce(&mut self, prompt_logprobs: Option<Vec<PromptTokenLogprob>>) {
        let Some(sequences) = &self.sequences else {
            return;
        };
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        let per_token = |p: PromptTokenLogprob| PromptLogprob {
            logprob: p.logprob,
            rank: p.rank,
            top: p.top,
        };
        let started = Started {
            prompt_ids: sequences.prompt.clone(),
            prompt_logprobs: prompt_logprobs.map(|all| all.into_iter().map(per_token).collect()),
        };
        // The channel is empty, so there is room.
        self.outlet.send(GenerateEvent::Started(started));
    }

    /// Sends the last event of a choice, after text that did not reach the client otherwise.
    fn end_choice(&mut self, i: usize, reason: FinishReason, undelivered: &str) {
        let now = self.shared.clock.now();
        let Some(sequences) = &mut self.sequences else {
            return;
        };
        let prompt_tokens = sequences.prompt.len() as u32;
        let choice = &mut sequences.choices[i];
        let usage = choice.usage(prompt_tokens, self.arrived, now);
        let mut done = choice.end(reason, usage);
        done.text.insert_str(0, undelivered);
        self.outlet.conclude(GenerateEvent::Done(done));
    }

    /// Ends every choice that goes on.
    fn end_all(&mut self, reason: FinishReason, ctx: &mut Context<Self>) {
        self.announce(None);
        self.cancel_open();
        let open = self
            .sequences
            .as_ref()
            .map(Sequences::open)
            .unwrap_or_default();
        for i in open {
            self.end_choice(i, reason.clone(), "");
        }
        self.leave_if_over(ctx);
    }

    /// Bound: once per sequence, when the session ends it.
    fn cancel_open(&self) {
        let Some(sequences) = &self.sequences else {
            return;
        };
        for i in sequences.open() {
            self.shared.scheduler.do_send(Cancel {
                seq: sequences.choices[i].seq,
            });
        }
    }

    fn leave_if_over(&mut self, ctx: &mut Context<Self>) {
        if self.sequences.as_ref().is_some_and(Sequences::is_over) && !self.over {
            self.shared.bus.publish(self.end().finished());
            self.leave(ctx);
        }
    }

    /// Ends the whole request with an error.
    fn fail(&mut self, error: RequestError, ctx: &mut Context<Self>) {
        self.cancel_open();
        self.shared.bus.publish(self.end().failed(&error));
        self.outlet.conclude(GenerateEvent::Failed(error));
        self.leave(ctx);
    }

    fn leave(&mut self, ctx: &mut Context<Self>) {
        self.over = true;
        ctx.stop();
    }

    fn end(&self) -> End<'_> {
        End {
            request: &self.request,
            sequences: self.sequences.as_ref(),
            arrived: self.arrived,
            now: self.shared.clock.now(),
        }
    }

    fn client_gone(&mut self, ctx: &mut Context<Self>) {
        if self.sequences.is_some() {
            self.end_all(FinishReason::Cancelled, ctx);
        } else if !self.over {
            self.shared.bus.publish(self.end().finished());
            self.leave(ctx);
        }
    }

    fn deadline_passed(&mut self, ctx: &mut Context<Self>) {
        match self.sequences {
            Some(_) => self.end_all(FinishReason::Timeout, ctx),
            None => {
                let waited = self.shared.clock.now().since(self.arrived);
                self.fail(RequestError::QueueTimeout { waited }, ctx);
            }
        }
    }
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.listed = Some(self.shared.requests.enter(Entry {
            id: self.request.id.as_str().into(),
            view: ctx.address().recipient(),
            end: ctx.address().recipient(),
        }));
        let gone = self.outlet.gone();
        ctx.spawn(
            gone.into_actor(self)
                .map(|(), act, ctx| act.client_gone(ctx)),
        );
        let timeout = self
            .request
            .timeout
            .unwrap_or_else(|| self.shared.live().request_timeout);
        ctx.run_later(timeout, Session::deadline_passed);
        self.prepare(ctx);
    }

    /// Also after a panic in a handler: nothing may stay on a device for a session that is no more.
    fn stopped(&mut self, _: &mut Context<Self>) {
        self.cancel_open();
    }
}

impl Handler<EndRequest> for Session {
    type Result = ();

    fn handle(&mut self, EndRequest: EndRequest, ctx: &mut Context<Self>) {
        if !self.over {
            self.fail(RequestError::Cancelled, ctx);
        }
    }
}
