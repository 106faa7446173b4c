//! `POST /v1/chat/completions`: from messages to one engine request and back. Tools are shown to the model through its template; thoughts and
//! calls are taken out of its answer (`http/chat_parts`), unless the answer must have a form of its own.
//!
//! `max_completion_tokens` rules over `max_tokens`; with neither, the answer may be as long as the model's length limit leaves.

use super::chat_prompt::ChatPrompt;
use super::chat_wire::{ChatCompletion, ChatFrames, Head};
use super::checks::whole;
use super::fields::{RouteParts, SharedFields};
use super::logprobs::TokenNames;
use super::tools::{ToolFields, ToolUse};
use super::{told, top_count, unoffered};
use crate::http::chat_parts::Reading;
use crate::http::grammar::Asked;
use crate::http::refusal::Refusal;
use crate::http::request_log::LogLine;
use crate::http::state::{AppState, Serving};
use crate::http::{body, json, request_id, sse, submit, wall_clock};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_engine::request::{GenerateRequest, Prompt};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Fields of this route alone.
#[derive(Debug, Deserialize)]
pub(super) struct ChatFields {
    messages: Vec<Value>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    logprobs: Option<bool>,
    top_logprobs: Option<i64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    include_reasoning: Option<bool>,
    echo: Option<bool>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    chat_template: Option<String>,
    chat_template_kwargs: Option<Map<String, Value>>,
    documents: Option<Vec<Value>>,
    reasoning_effort: Option<String>,
    return_prompt_text: Option<bool>,
}

/// Answers `POST /v1/chat/completions`.
pub async fn route(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    let id = request_id::of(&request);
    let mut log = LogLine::new(state.request_log.as_ref(), &id, "/v1/chat/completions");
    match answer(&request, payload, &state, &mut log).await {
        Ok(response) => response,
        Err(refusal) => told(of_messages(refusal), &state, &mut log),
    }
}

/// What the engine says of the prompt is about the messages here.
fn of_messages(mut refusal: Refusal) -> Refusal {
    if refusal.field.as_deref() == Some("prompt") {
        refusal.message = refusal.message.replacen("prompt:", "messages:", 1);
        refusal.field = Some("messages".to_owned());
    }
    refusal
}

async fn answer(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let tenant = state.keys.tenant(request)?;
    let serving = state.serving()?;
    let bytes = body::read_json(request, payload, state).await?;
    let (own, shared) = json::parse_pair::<ChatFields, SharedFields>(&bytes)?;
    let mut unknown = unoffered::check(&bytes, shared.ignored)?;
    unknown.extend(unoffered::in_messages(&own.messages));
    drop(bytes);
    let ignored = submit::ignored_header(state, &unknown)?;
    let shared = shared.value;
    shared.check_model(serving)?;
    let wanted = shared.streaming()?;
    let id = shared.id(request)?;
    log.named(&id);
    let logprobs = own.logprobs()?;
    let logprobs_shown = shared.logprobs_shown(logprobs)?;
    let shown = shared.shown();
    let tools = own.tool_fields().checked()?;
    let prompt = own.prompt_fields().render(serving, &state.limits)?;
    let parts = RouteParts {
        id: submit::engine_id(&id),
        tenant,
        max_tokens: own.max_tokens()?,
        logprobs,
        prompt_logprobs: shared.prompt_logprobs()?,
    };
    let prompt = Prompt::Text {
        text: prompt,
        add_special_tokens: shared.add_special_tokens.unwrap_or(false),
    };
    let mut generate = shared.request(prompt, &parts, serving)?;
    let one = std::slice::from_mut(&mut generate);
    submit::check_count(serving, one)?;
    let asked = one_grammar(&tools, shared.structured().asked()?)?;
    let reading = own.reading(&tools, asked.is_some(), one, serving);
    serving.grammars.constrain(asked, one).await?;
    log.prompt(|| prompt_text(&generate));
    let head = Head {
        id: format!("chatcmpl-{id}"),
        created: wall_clock::now(),
        model: serving.model.name().to_owned(),
        logprobs: logprobs_shown,
        prompt_logprobs: parts.prompt_logprobs,
        token_ids: shown.token_ids,
        prompt_text: (own.return_prompt_text == Some(true)).then(|| prompt_text(&generate)),
        names: TokenNames::new(serving.text.clone(), shown.names_are_ids),
        echo: own.echoed(),
        reading,
    };
    if let Some(wanted) = wanted {
        let frames = ChatFrames::new(head, generate.choices, wanted);
        let running = submit::start(serving, vec![generate], log.take());
        let keep_alive = submit::keep_alive(state, serving);
        return sse::respond(running, frames, keep_alive, ignored).await;
    }
    let answers = submit::answers(serving, vec![generate], log).await?;
    let answer = answers
        .first()
        .ok_or_else(crate::http::answer::incomplete)?;
    Ok(submit::ok(ignored).json(ChatCompletion::of(&head, answer)))
}

/// What the answer must obey: the form that is asked for, or a forced call.
fn one_grammar(tools: &ToolUse, form: Option<Asked>) -> Result<Option<Asked>, Refusal> {
    match (tools.grammar(), form) {
        (Some(_), Some(form)) => Err(Refusal::invalid(
            form.field.as_str(),
            format!(
                "{} cannot be used together with a tool_choice that forces a call",
                form.field
            ),
        )),
        (Some(call), None) => Ok(Some(call.clone())),
        (None, form) => Ok(form),
    }
}

fn prompt_text(request: &GenerateRequest) -> String {
    match &request.prompt {
        Prompt::Text { text, .. } => text.clone(),
        Prompt::Ids(ids) => format!("{ids:?}"),
    }
}

impl ChatFields {
    fn prompt_fields(&self) -> ChatPrompt<'_> {
        ChatPrompt {
            messages: &self.messages,
            tools: self.tools.as_deref().unwrap_or(&[]),
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            chat_template: self.chat_template.as_deref(),
            chat_template_kwargs: self.chat_template_kwargs.as_ref(),
            documents: self.documents.as_deref(),
            reasoning_effort: self.reasoning_effort.as_deref(),
        }
    }

    /// The text that `echo` puts before the answer: that of a last message of the assistant's.
    fn echoed(&self) -> Option<String> {
        let last = self.messages.last().filter(|_| self.echo == Some(true))?;
        let text = last["content"].as_str()?;
        (last["role"] == "assistant").then(|| text.to_owned())
    }

    fn tool_fields(&self) -> ToolFields<'_> {
        ToolFields {
            tools: self.tools.as_deref(),
            tool_choice: self.tool_choice.as_ref(),
            parallel_tool_calls: self.parallel_tool_calls,
        }
    }

    /// How answers are taken apart. One that obeys a form is what that form says: it begins with no thoughts, and holds the calls that it
    /// was forced to at most. Marks that are special tokens have to be in the text for that.
    fn reading(
        &self,
        tools: &ToolUse,
        has_form: bool,
        requests: &mut [GenerateRequest],
        serving: &Serving,
    ) -> Reading {
        let calls = match (tools, has_form) {
            (ToolUse::Auto, true) => None,
            _ => tools.calls(&self.tool_fields(), serving.answers.calls),
        };
        if calls
            .as_ref()
            .is_some_and(|calls| calls.format.has_special_markers())
        {
            requests
                .iter_mut()
                .for_each(|request| request.skip_special_tokens = false);
        }
        let prompt = requests.first().map(prompt_text).unwrap_or_default();
        let thinking = serving.answers.thinking.filter(|_| !has_form);
        Reading {
            thinking: thinking.and_then(|thinking| thinking.after(&prompt)),
            shows_thoughts: self.include_reasoning.unwrap_or(true),
            calls,
        }
    }

    fn max_tokens(&self) -> Result<Option<u32>, Refusal> {
        let (field, value) = match (self.max_completion_tokens, self.max_tokens) {
            (Some(value), _) => ("max_completion_tokens", value),
            (None, Some(value)) => ("max_tokens", value),
            (None, None) => return Ok(None),
        };
        Ok(Some(whole(field, value, 1, u32::MAX.into())? as u32))
    }

    fn logprobs(&self) -> Result<Option<u32>, Refusal> {
        let on = self.logprobs.unwrap_or(false);
        let top = self
            .top_logprobs
            .map(|top| top_count("top_logprobs", top))
            .transpose()?;
        match (on, top) {
            (false, Some(top)) if top > 0 => Err(Refusal::invalid(
                "top_logprobs",
                format!("top_logprobs = {top} needs logprobs to be true"),
            )),
            (false, _) => Ok(None),
            (true, top) => Ok(Some(top.unwrap_or(0))),
        }
    }
}
