//! `POST /v2/models/{model}/infer`: Triton's inference protocol with one tensor of token ids in and one out, never streamed.

use super::models::check_model;
use super::parameters::{Parameters, Ranges, or_default, wrong};
use super::triton::checked_id;
use super::{error, receive};
use crate::http::answer;
use crate::http::json::parse;
use crate::http::refusal::Refusal;
use crate::http::request_log::LogLine;
use crate::http::state::AppState;
use crate::http::{request_id, submit};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::Prompt;
use serde::{Deserialize, Serialize};

/// The only type of tensors here.
const DATATYPE: &str = "UINT32";
/// Longest name of a tensor.
const NAME_MAX: usize = 256;
/// What an output is called that has an empty name.
const OUTPUT: &str = "output0";

#[derive(Debug, Deserialize)]
struct Body {
    id: Option<String>,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
}

#[derive(Debug, Deserialize)]
struct Input {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    data: Vec<u32>,
    #[serde(default, deserialize_with = "or_default")]
    parameters: Parameters,
}

#[derive(Debug, Deserialize)]
struct Output {
    name: String,
}

#[derive(Serialize)]
struct Inferred<'a> {
    id: &'a str,
    outputs: [Tensor<'a>; 1],
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    shape: [usize; 2],
    datatype: &'static str,
    data: Vec<u32>,
}

/// Answers `POST /v2/models/{model}/infer`.
pub async fn route(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    let id = request_id::of(&request);
    let mut log = LogLine::new(state.request_log.as_ref(), &id, "/v2/models/{model}/infer");
    let answer = answer(&request, payload, &state, &mut log).await;
    answer.unwrap_or_else(|refusal| {
        log.refused(&refusal);
        error::response(&refusal)
    })
}

async fn answer(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let received = receive(request, payload, state).await?;
    check_model(request, received.serving)?;
    let parsed = parse::<Body>(&received.bytes)?;
    let ignored = submit::ignored_header(state, &parsed.ignored)?;
    let asked = parsed.value;
    let (input, output) = checked(asked.inputs, asked.outputs)?;
    let id = checked_id(asked.id)?.unwrap_or_else(|| request_id::of(request));
    let ids = input.data.into_iter().map(TokenId).collect();
    let wish = input.parameters.wish(Ranges::Triton, Prompt::Ids(ids))?;
    let generate = wish.engine_request(request, &received);
    let _running = state.stoppable.register(&received.tenant, &id);
    let stopped = _running.stopped();
    let mut answers = tokio::select! {
        biased;
        () = stopped => return Err(super::frames::stopped()),
        answers = submit::answers(received.serving, vec![generate], log) => answers?,
    };
    let choice = answers.pop().and_then(|mut answer| answer.choices.pop());
    let choice = choice.ok_or_else(answer::incomplete)?;
    let data: Vec<u32> = choice.tokens.iter().map(|token| token.id.0).collect();
    Ok(submit::ok(ignored).json(Inferred {
        id: &id,
        outputs: [Tensor {
            name: &output,
            shape: [1, data.len()],
            datatype: DATATYPE,
            data,
        }],
    }))
}

/// The one input, and the name of the one output.
fn checked(inputs: Vec<Input>, outputs: Vec<Output>) -> Result<(Input, String), Refusal> {
    let Ok([input]) = <[Input; 1]>::try_from(inputs) else {
        return Err(Refusal::invalid("inputs", "Inputs count must be 1."));
    };
    let Ok([output]) = <[Output; 1]>::try_from(outputs) else {
        return Err(Refusal::invalid("outputs", "Outputs size should be 1."));
    };
    if input.name.len() > NAME_MAX {
        let what = format!(
            "must have at most {NAME_MAX} bytes, got {}",
            input.name.len()
        );
        return Err(wrong("inputs[0].name", &what));
    }
    if input.datatype != DATATYPE {
        let what = format!("must be {DATATYPE}, got {}", input.datatype);
        return Err(wrong("inputs[0].datatype", &what));
    }
    let length = match input.shape[..] {
        [length] | [1, length] => length,
        _ => {
            let what = format!("must be [N] or [1, N], got {:?}", input.shape);
            return Err(wrong("inputs[0].shape", &what));
        }
    };
    if length == 0 || length != input.data.len() as u64 {
        let what = format!(
            "must have as many elements as its shape says, at least one: {length}, got {}",
            input.data.len()
        );
        return Err(wrong("inputs[0].data", &what));
    }
    let name = match output.name.is_empty() {
        true => OUTPUT.to_owned(),
        false => output.name,
    };
    Ok((input, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(input: &str, outputs: &str) -> String {
        let inputs = serde_json::from_str(&format!("[{input}]")).expect("inputs");
        let outputs = serde_json::from_str(outputs).expect("outputs");
        match checked(inputs, outputs) {
            Ok((_, name)) => name,
            Err(refusal) => refusal.message,
        }
    }

    #[test]
    fn tensors_are_checked_against_their_shape() {
        let input = |shape: &str, kind: &str, data: &str| {
            format!(r#"{{"name":"i","shape":{shape},"datatype":"{kind}","data":{data}}}"#)
        };
        let out = r#"[{"name":"o"}]"#;
        assert_eq!(told(&input("[2]", "UINT32", "[1,2]"), out), "o");
        let unnamed = told(&input("[1,2]", "UINT32", "[1,2]"), r#"[{"name":""}]"#);
        assert_eq!(unnamed, "output0");
        for (shape, kind, data, words) in [
            ("[2,1]", "UINT32", "[1,2]", "must be [N] or [1, N]"),
            ("[]", "UINT32", "[1]", "must be [N] or [1, N]"),
            ("[3]", "UINT32", "[1,2]", "3, got 2"),
            ("[0]", "UINT32", "[]", "at least one"),
            ("[1]", "FP32", "[1]", "must be UINT32, got FP32"),
        ] {
            let error = told(&input(shape, kind, data), out);
            assert!(error.contains(words), "{error}");
        }
        let error = told(&input("[1]", "UINT32", "[1]"), "[]");
        assert_eq!(error, "Outputs size should be 1.");
    }
}
