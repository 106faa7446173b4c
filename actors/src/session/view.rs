//! What a session shows of itself.

use super::Session;
use super::sequences::Sequences;
use crate::messages::Snapshot;
use actix::{Context, Handler, MessageResult};
use serde::Serialize;

/// A view of one session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionView {
    /// The request's id.
    pub request: String,
    /// Prompt tokens; `None` while they are not known.
    pub prompt_tokens: Option<usize>,
    /// Generated tokens per choice.
    pub generated_tokens: Vec<usize>,
    /// Choices that go on.
    pub open_choices: usize,
    /// How often its sequences went on after the loss of a device.
    pub replays: u32,
    /// Seconds since its arrival.
    pub age_s: f64,
}

impl Handler<Snapshot<SessionView>> for Session {
    type Result = MessageResult<Snapshot<SessionView>>;

    fn handle(&mut self, _: Snapshot<SessionView>, _: &mut Context<Self>) -> Self::Result {
        let sequences = self.sequences.as_ref();
        let lengths = |s: &Sequences| s.choices.iter().map(|c| c.output.len()).collect();
        MessageResult(SessionView {
            request: self.request.id.clone(),
            prompt_tokens: sequences.map(|s| s.prompt.len()),
            generated_tokens: sequences.map(lengths).unwrap_or_default(),
            open_choices: sequences.map_or(0, |s| s.open().len()),
            replays: sequences.map_or(0, |s| s.replays),
            age_s: self.shared.clock.now().since(self.arrived).as_secs_f64(),
        })
    }
}
