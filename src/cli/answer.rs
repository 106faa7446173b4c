//! Streams one answer to the terminal.

use crate::signals::Signals;
use futures_util::StreamExt;
use ropeteam_actors::Engine;
use ropeteam_actors::generation::{DoneEvent, GenerateEvent, RequestError};
use ropeteam_engine::request::GenerateRequest;
use std::io::Write;

/// An answer that was written out.
pub struct Answer {
    /// Its text, as far as it came.
    pub text: String,
    /// How it ended; `None` when a signal stopped it.
    pub done: Option<DoneEvent>,
}

/// Runs the request and writes its text to the standard output as it comes. A signal stops it.
///
/// # Errors
/// Why there is no (further) answer.
pub async fn stream(
    engine: &Engine,
    request: GenerateRequest,
    signals: &mut Signals,
) -> Result<Answer, RequestError> {
    let mut generation = engine.generate(request);
    let mut answer = Answer {
        text: String::new(),
        done: None,
    };
    loop {
        let event = tokio::select! {
            event = generation.next() => event,
            // Leaving drops the generation, which cancels the request.
            _ = signals.next() => break,
        };
        match event {
            Some(GenerateEvent::Started(_)) => {}
            Some(GenerateEvent::Tokens(tokens)) => answer.add(&tokens.text),
            Some(GenerateEvent::Done(done)) => {
                answer.add(&done.text);
                answer.done = Some(done);
                break;
            }
            Some(GenerateEvent::Failed(error)) => return Err(error),
            None => break,
        }
    }
    Ok(answer)
}

impl Answer {
    fn add(&mut self, text: &str) {
        // A reader that has gone away is no reason to fail: the answer ends with its request.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.text.push_str(text);
    }

    /// "12 tokens, 95.2 tokens/s, first after 31 ms".
    pub fn statistics(&self) -> Option<String> {
        let usage = &self.done.as_ref()?.usage;
        let tokens = usage.completion_tokens;
        let streaming = usage
            .total_time
            .saturating_sub(usage.first_token_time)
            .as_secs_f64();
        let rate = f64::from(tokens.saturating_sub(1)) / streaming.max(1e-9);
        let first = usage.first_token_time.as_millis();
        Some(format!(
            "{} prompt tokens, {tokens} tokens, {rate:.1} tokens/s, first after {first} ms, seed {}",
            usage.prompt_tokens, usage.seed
        ))
    }
}
