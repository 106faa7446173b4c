//! TGI's routes, in the versions that are about: 0.9.4, 3.x (`input_length`) and MindIE's (`prompt_tokens`).

use super::text::Text;
use super::{Manner, Said, error_text};
use crate::bench::dataset::{Prompt, Sample};
use crate::bench::record::Usage;
use serde::Deserialize;
use serde_json::{Value, json};

/// The body that asks for this sample. Greedy is asked for by leaving the temperature out: TGI refuses 0.
pub fn body(manner: &Manner, sample: &Sample) -> Value {
    let inputs = match &sample.prompt {
        Prompt::Text(text) => json!(text),
        Prompt::Ids(ids) => json!(ids),
        Prompt::Messages(messages) => messages.clone(),
    };
    let mut parameters = json!({
        "max_new_tokens": sample.output_len,
        "details": true,
        "do_sample": manner.temperature > 0.0,
    });
    if manner.temperature > 0.0 {
        parameters["temperature"] = json!(manner.temperature);
    }
    if manner.ignore_eos {
        parameters["ignore_eos"] = json!(true);
    }
    json!({"inputs": inputs, "parameters": parameters})
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    token: Option<Token<'a>>,
    generated_text: Option<Whole>,
    details: Option<Details>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Token<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
}

/// A text that only has to be there.
#[derive(Deserialize)]
struct Whole(String);

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    generated_tokens: u32,
    input_length: Option<u32>,
    prompt_tokens: Option<u32>,
}

impl From<Details> for Usage {
    fn from(details: Details) -> Self {
        Usage {
            prompt: details.input_length.or(details.prompt_tokens),
            output: details.generated_tokens,
            cached: 0,
        }
    }
}

/// Reads one event: one token each, and the last one holds the whole text.
///
/// # Errors
/// When it is no such event.
pub fn read_event(data: &[u8]) -> Result<Said<'_>, serde_json::Error> {
    let frame: Frame<'_> = serde_json::from_slice(data)?;
    Ok(Said {
        token: frame.token.is_some(),
        text: frame.token.map(|token| token.text.0).unwrap_or_default(),
        usage: frame.details.map(Usage::from),
        last: frame.generated_text.is_some(),
        error: frame.error.as_ref().and_then(error_text),
    })
}

/// Reads a whole answer.
///
/// # Errors
/// When it is no such answer.
pub fn read_whole(body: &[u8]) -> Result<Said<'_>, serde_json::Error> {
    let frame: Frame<'_> = serde_json::from_slice(body)?;
    Ok(Said {
        token: frame.generated_text.is_some(),
        text: frame
            .generated_text
            .map(|whole| whole.0.into())
            .unwrap_or_default(),
        usage: frame.details.map(Usage::from),
        last: true,
        error: frame.error.as_ref().and_then(error_text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_the_end_and_errors_are_read() {
        let token = br#"{"token":{"id":5,"text":" a","logprob":-0.1,"special":false},"generated_text":null,"details":null}"#;
        let said = read_event(token).unwrap();
        assert_eq!((&*said.text, said.token, said.last), (" a", true, false));
        let last = br#"{"index":2,"token":{"id":5,"text":"!","logprob":null,"special":null},"generated_text":" a!","details":{"finish_reason":"length","generated_tokens":2,"input_length":7}}"#;
        let said = read_event(last).unwrap();
        assert!(said.last && said.token);
        let counts = Usage {
            prompt: Some(7),
            output: 2,
            cached: 0,
        };
        assert_eq!(said.usage, Some(counts));
        let error = br#"{"error":"Request failed during generation: x","error_type":"generation"}"#;
        assert!(read_event(error).unwrap().error.unwrap().contains("failed"));
    }

    #[test]
    fn a_whole_answer_is_read() {
        let whole = br#"{"generated_text":"ok","details":{"finish_reason":"length","generated_tokens":2,"seed":null,"prefill":[],"tokens":[]}}"#;
        let said = read_whole(whole).unwrap();
        assert_eq!((&*said.text, said.token), ("ok", true));
        assert_eq!(
            said.usage.map(|usage| (usage.prompt, usage.output)),
            Some((None, 2))
        );
    }
}
