//! What a session shows of itself.

use super::Session;
use super::sequences::Sequences;
use crate::generation::{RequestState, SessionView};
use crate::messages::Snapshot;
use actix::{Context, Handler, MessageResult};

impl Handler<Snapshot<SessionView>> for Session {
    type Result = MessageResult<Snapshot<SessionView>>;

    fn handle(&mut self, _: Snapshot<SessionView>, _: &mut Context<Self>) -> Self::Result {
        let sequences = self.sequences.as_ref();
        let lengths = |s: &Sequences| s.choices.iter().map(|c| c.output.len()).collect();
        MessageResult(SessionView {
            request: self.request.id.clone(),
            state: match sequences {
                None => RequestState::Tokenising,
                Some(s) if s.choices.iter().all(|c| c.times.started.is_none()) => {
                    RequestState::Waiting
                }
                Some(_) => RequestState::Running,
            },
            tenant: self.request.tenant.clone(),
            priority: self.request.priority,
            device: self.device,
            prompt_tokens: sequences.map(|s| s.prompt.len()),
            generated_tokens: sequences.map(lengths).unwrap_or_default(),
            open_choices: sequences.map_or(0, |s| s.open().len()),
            replays: sequences.map_or(0, |s| s.replays),
            age_s: self.shared.clock.now().since(self.arrived).as_secs_f64(),
        })
    }
}
