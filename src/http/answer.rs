//! Gathers what the engine says about a request: the first event (is it admitted?), or the whole answer.
//! Dropping any of this before its end cancels the request. Not here: shapes on the wire.

use super::refusal::{Kind, Refusal};
use futures_util::{Stream, StreamExt};
use ropeteam_actors::generation::{DoneEvent, GenerateEvent, Started, TokenOut, Usage};
use ropeteam_engine::request::FinishReason;

/// A request's whole result.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The prompt as the engine saw it.
    pub started: Started,
    /// One per choice, in order.
    pub choices: Vec<Choice>,
}

/// One continuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenOut>,
    /// Why it ended; never a failure.
    pub reason: FinishReason,
    /// What it used.
    pub usage: Usage,
    /// The vector of the prompt, when one was asked for.
    pub embedding: Option<Vec<f32>>,
}

impl Choice {
    /// Mean log-probability of its tokens, as far as they are known.
    pub fn mean_logprob(&self) -> f32 {
        let sum: f32 = self.tokens.iter().filter_map(|token| token.logprob).sum();
        sum / self.tokens.len().max(1) as f32
    }
}

/// A choice that has not ended yet.
#[derive(Default)]
struct Growing {
    text: String,
    tokens: Vec<TokenOut>,
    end: Option<DoneEvent>,
}

/// Waits until all `choices` have ended.
///
/// # Errors
/// The engine's refusal, or the failure of any choice: half an answer is none.
pub async fn collect<S>(events: S, choices: u32) -> Result<Answer, Refusal>
where
    S: Stream<Item = GenerateEvent>,
{
    let mut events = std::pin::pin!(events);
    let mut started = None;
    let mut growing: Vec<Growing> = (0..choices).map(|_| Growing::default()).collect();
    let mut open = growing.len();
    while open > 0 {
        match events.next().await {
            Some(GenerateEvent::Started(event)) => started = Some(event),
            Some(GenerateEvent::Tokens(event)) => {
                if let Some(choice) = growing.get_mut(event.choice as usize) {
                    choice.text.push_str(&event.text);
                    choice.tokens.extend(event.tokens);
                }
            }
            Some(GenerateEvent::Done(event)) => {
                if let Some(failure) = Refusal::of_finish(&event.reason) {
                    return Err(failure);
                }
                if let Some(choice) = growing.get_mut(event.choice as usize) {
                    choice.text.push_str(&event.text);
                    choice.end = Some(event);
                    open -= 1;
                }
            }
            Some(GenerateEvent::Failed(error)) => return Err(error.into()),
            None => return Err(incomplete()),
        }
    }
    let choices = growing
        .into_iter()
        .map(finished)
        .collect::<Option<Vec<_>>>();
    match (started, choices) {
        (Some(started), Some(choices)) => Ok(Answer { started, choices }),
        _ => Err(incomplete()),
    }
}

fn finished(choice: Growing) -> Option<Choice> {
    let end = choice.end?;
    Some(Choice {
        text: choice.text,
        tokens: choice.tokens,
        reason: end.reason,
        usage: end.usage,
        embedding: end.embedding,
    })
}

/// The engine fell silent before the end.
pub fn incomplete() -> Refusal {
    Refusal::new(
        Kind::Incomplete,
        "the engine ended the request without a result",
    )
}

/// The engine's own word for an end, for logs.
pub fn finish_word(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfText(_) => "end_of_text",
        FinishReason::StopToken(_) => "stop_token",
        FinishReason::StopString(_) => "stop_string",
        FinishReason::Length => "length",
        FinishReason::Pooled => "pooled",
        FinishReason::Cancelled => "cancelled",
        FinishReason::Timeout => "timeout",
        FinishReason::DeviceError => "device_error",
        FinishReason::ConstraintFailed => "constraint_failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::scripted::{done, failed, started, tokens};
    use futures_util::{FutureExt, stream};
    use ropeteam_actors::generation::RequestError;
    use ropeteam_engine::ids::TokenId;

    fn collected(events: Vec<GenerateEvent>, choices: u32) -> Result<Answer, Refusal> {
        collect(stream::iter(events), choices)
            .now_or_never()
            .expect("a script never waits")
    }

    #[test]
    fn choices_are_sorted_out_and_joined() {
        let answer = collected(
            vec![
                started(&[1, 2]),
                tokens(1, "x", &[7]),
                tokens(0, "a", &[5]),
                done(1, "y", FinishReason::Length),
                tokens(0, "b", &[6]),
                done(0, "", FinishReason::EndOfText(TokenId(9))),
            ],
            2,
        )
        .unwrap();
        assert_eq!(answer.choices[0].text, "ab");
        assert_eq!(answer.choices[1].text, "xy");
        assert_eq!(answer.choices[0].tokens.len(), 2);
    }

    #[test]
    fn a_failed_choice_fails_the_whole() {
        let events = vec![
            started(&[1]),
            tokens(0, "a", &[5]),
            done(0, "", FinishReason::DeviceError),
        ];
        assert_eq!(collected(events, 1).unwrap_err().kind, Kind::Device);
        assert_eq!(
            collected(vec![failed(RequestError::NoDevice)], 1)
                .unwrap_err()
                .kind,
            Kind::Unavailable
        );
        assert_eq!(
            collected(vec![started(&[1]), tokens(0, "a", &[5])], 1)
                .unwrap_err()
                .kind,
            Kind::Incomplete
        );
    }
}
