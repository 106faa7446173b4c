//! What is known of one request after it: its times, its counts, and why it failed if it did.

use std::time::Duration;

/// Why a request gave no whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection: refused, unreachable, unknown host.
    Connect(String),
    /// The connection broke before there was an answer.
    Broken(String),
    /// No end within the time allowed.
    Timeout,
    /// An answer other than 200.
    Status(u16, String),
    /// The stream ended without its end marker.
    CutOff(String),
    /// The server said in the stream that it failed.
    ErrorEvent(String),
    /// What came is not what the API promises.
    Malformed(String),
    /// An answer without a single token.
    Empty,
}

impl Failure {
    /// Failures with the same kind are counted together.
    pub fn kind(&self) -> String {
        match self {
            Failure::Connect(_) => "no connection".to_owned(),
            Failure::Broken(_) => "connection broken".to_owned(),
            Failure::Timeout => "timeout".to_owned(),
            Failure::Status(code, _) => format!("HTTP {code}"),
            Failure::CutOff(_) => "stream cut off".to_owned(),
            Failure::ErrorEvent(_) => "error in stream".to_owned(),
            Failure::Malformed(_) => "malformed answer".to_owned(),
            Failure::Empty => "no token".to_owned(),
        }
    }

    /// What was said, if anything.
    pub fn detail(&self) -> &str {
        match self {
            Failure::Connect(detail)
            | Failure::Broken(detail)
            | Failure::Status(_, detail)
            | Failure::CutOff(detail)
            | Failure::ErrorEvent(detail)
            | Failure::Malformed(detail) => detail,
            Failure::Timeout | Failure::Empty => "",
        }
    }
}

/// Token counts as the server tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt; TGI tells them in its later versions only.
    pub prompt: Option<u32>,
    /// Tokens of the answer.
    pub output: u32,
    /// Tokens of the prompt that were found in a cache.
    pub cached: u32,
}

/// One request.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// When it was due, from the start of the run. Latencies count from here.
    pub start: Duration,
    /// From there to the first event with a token; `None` without streaming.
    pub first: Option<Duration>,
    /// From there to its end, good or bad.
    pub end: Duration,
    /// Microseconds between events with tokens. A server may put several tokens into one event, and then has fewer gaps than tokens.
    pub gaps: Vec<u32>,
    /// What the server counted; `None` when it told nothing.
    pub usage: Option<Usage>,
    /// Tokens that the answer was to have at most.
    pub asked: u32,
    /// Tokens of the prompt by our own tokenizer, as far as known.
    pub prompt_counted: Option<u32>,
    /// The answer's text, kept only to count its tokens.
    pub text: String,
    /// Tokens of `text` by our own tokenizer.
    pub output_counted: Option<u32>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

impl Record {
    /// Events that carried a token.
    pub fn events(&self) -> u32 {
        match self.first {
            Some(_) => self.gaps.len() as u32 + 1,
            None => 0,
        }
    }

    /// Tokens of the answer: the server's count, or else our own, or else one per event.
    pub fn output_tokens(&self) -> u32 {
        let counted = self.usage.map(|usage| usage.output);
        counted
            .or(self.output_counted)
            .unwrap_or_else(|| self.events())
    }

    /// Tokens of the prompt: the server's count, or else our own.
    pub fn prompt_tokens(&self) -> Option<u32> {
        self.usage
            .and_then(|usage| usage.prompt)
            .or(self.prompt_counted)
    }

    /// Time per output token after the first, in seconds: from the first event to the last, over the tokens but one. With several tokens
    /// in the first event this is a little too short.
    pub fn time_per_token(&self) -> Option<f64> {
        let tokens = self.output_tokens();
        let span: f64 = self.gaps.iter().map(|gap| f64::from(*gap)).sum();
        (tokens > 1 && !self.gaps.is_empty()).then(|| span / 1e6 / f64::from(tokens - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_count_comes_first_then_our_own_then_events() {
        let mut record = Record {
            first: Some(Duration::from_millis(5)),
            gaps: vec![1000, 3000],
            ..Record::default()
        };
        assert_eq!(record.output_tokens(), 3);
        record.output_counted = Some(4);
        assert_eq!(record.output_tokens(), 4);
        record.usage = Some(Usage {
            output: 5,
            ..Usage::default()
        });
        assert_eq!(record.output_tokens(), 5);
        assert_eq!(record.time_per_token(), Some(0.001));
    }

    #[test]
    fn an_answer_of_one_token_has_no_time_per_token() {
        let record = Record {
            first: Some(Duration::ZERO),
            ..Record::default()
        };
        assert_eq!((record.events(), record.time_per_token()), (1, None));
    }
}
