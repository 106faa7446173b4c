//! From the messages of a chat to the prompt's text: the fields that steer the chat template. Shared by the routes that take messages.
//! Not here: the template itself (`models::text`), taking answers apart (`http/chat_parts`).

use crate::http::refusal::Refusal;
use crate::http::state::{Limits, Serving};
use ropeteam_models::text::{ChatTemplate, RenderInput};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Variables of templates that fields stand for.
const DOCUMENTS: &str = "documents";
const EFFORT: &str = "reasoning_effort";
const THINKING: &str = "enable_thinking";
/// In a template that may tell a message without content by its being null.
const ASKS_FOR_NULL: &str = "none";
/// The field of a template.
const TEMPLATE: &str = "chat_template";
/// Longest template of a request.
const TEMPLATE_BYTES_MAX: usize = 64 << 10;

/// What a request says about its prompt.
#[derive(Clone, Copy, Debug)]
pub struct ChatPrompt<'a> {
    /// The messages.
    pub messages: &'a [Value],
    /// Tools that the model is told of.
    pub tools: &'a [Value],
    /// End where the answer starts; by default so, unless the last message is to be continued.
    pub add_generation_prompt: Option<bool>,
    /// End behind the last message's text.
    pub continue_final_message: Option<bool>,
    /// A template in place of the model's.
    pub chat_template: Option<&'a str>,
    /// Variables for the template.
    pub chat_template_kwargs: Option<&'a Map<String, Value>>,
    /// Documents that the model may draw on.
    pub documents: Option<&'a [Value]>,
    /// How much the model shall think.
    pub reasoning_effort: Option<&'a str>,
}

impl ChatPrompt<'_> {
    /// The prompt's text.
    ///
    /// # Errors
    /// Fields that contradict each other, a template that cannot be used or that does not know what a field is for.
    pub fn render(&self, serving: &Serving, limits: &Limits) -> Result<String, Refusal> {
        let go_on = self.continue_final_message.unwrap_or(false);
        let generation_prompt = self.add_generation_prompt.unwrap_or(!go_on);
        if go_on && generation_prompt {
            return Err(Refusal::invalid(
                "continue_final_message",
                "continue_final_message and add_generation_prompt cannot both be true",
            ));
        }
        let template = self.template(serving, limits)?;
        let variables = self.variables(&template, serving)?;
        let messages = self.messages.iter().cloned().map(with_known_role);
        let mut messages: Vec<Value> = messages.collect();
        if !template.mentions(ASKS_FOR_NULL) {
            messages.iter_mut().for_each(fill_content);
        }
        let render = |messages: &[Value]| {
            template.render(&RenderInput {
                messages,
                tools: self.tools,
                add_generation_prompt: generation_prompt,
                variables: Some(&variables),
            })
        };
        let mut rendered = render(&messages);
        if rendered.is_err() && messages.iter().any(lacks_content) {
            // It asked whether something else is null.
            messages.iter_mut().for_each(fill_content);
            rendered = render(&messages);
        }
        let prompt = rendered.map_err(|error| Refusal::invalid("messages", error.to_string()))?;
        if go_on {
            cut_behind_last(prompt, &messages)
        } else {
            Ok(prompt)
        }
    }

    /// The model's template, or the request's own where that is allowed: a template is a program.
    fn template(&self, serving: &Serving, limits: &Limits) -> Result<Arc<ChatTemplate>, Refusal> {
        let Some(source) = self.chat_template else {
            let own = serving.chat.clone();
            return own.map_err(|why| Refusal::invalid("messages", why));
        };
        let wrong = |message: String| Err(Refusal::invalid(TEMPLATE, message));
        if !limits.own_chat_templates {
            return wrong(format!(
                "{TEMPLATE} is refused: this server trusts no templates of requests (--trust-request-chat-template)"
            ));
        }
        if source.len() > TEMPLATE_BYTES_MAX {
            return wrong(format!(
                "{TEMPLATE} must have at most {TEMPLATE_BYTES_MAX} bytes, got {}",
                source.len()
            ));
        }
        match ChatTemplate::from_source(source, TEMPLATE, &serving.special) {
            Ok(template) => Ok(Arc::new(template)),
            Err(error) => wrong(error.to_string()),
        }
    }

    /// Variables for the template. What it would not read is refused.
    fn variables(
        &self,
        template: &ChatTemplate,
        serving: &Serving,
    ) -> Result<Map<String, Value>, Refusal> {
        let unread = |field: &str, value: &dyn std::fmt::Display| {
            let message = format!("{field} = {value}: the model's chat template does not read it");
            Err(Refusal::invalid(field, message))
        };
        let mut variables = self.chat_template_kwargs.cloned().unwrap_or_default();
        if let Some(documents) = self.documents.filter(|documents| !documents.is_empty()) {
            if let Some(other) = documents.iter().find(|document| !document.is_object()) {
                let message = format!("{DOCUMENTS} must be a list of objects, got {other}");
                return Err(Refusal::invalid(DOCUMENTS, message));
            }
            if !template.mentions(DOCUMENTS) {
                return unread(DOCUMENTS, &"[…]");
            }
            variables.insert(DOCUMENTS.to_owned(), Value::from(documents));
        }
        if let Some(effort) = self.reasoning_effort {
            let switch = (effort == "none").then_some(THINKING);
            let read = template.mentions(EFFORT);
            let switched = switch.filter(|name| template.mentions(name));
            let thinks = serving.answers.thinking.is_some();
            if !read && switched.is_none() && (thinks || effort != "none") {
                return unread(EFFORT, &format!("{effort:?}"));
            }
            if let Some(name) = switched {
                variables.entry(name).or_insert(Value::Bool(false));
            }
            variables.entry(EFFORT).or_insert(Value::from(effort));
        }
        Ok(variables)
    }
}

/// OpenAI's newer `developer` role is the `system` role that templates know.
fn with_known_role(mut message: Value) -> Value {
    if message["role"] == "developer" {
        message["role"] = Value::from("system");
    }
    message
}

/// Whether a message has no content: an assistant's that holds calls only.
fn lacks_content(message: &Value) -> bool {
    message.is_object() && message["content"].is_null()
}

/// Gives a message without content an empty one, as vLLM does: many templates put it behind a string without a look.
fn fill_content(message: &mut Value) {
    if lacks_content(message) {
        message["content"] = Value::from("");
    }
}

/// The prompt up to the end of the last message's text, so that the model goes on with it.
fn cut_behind_last(mut prompt: String, messages: &[Value]) -> Result<String, Refusal> {
    let text = messages
        .last()
        .and_then(|message| message["content"].as_str())
        .unwrap_or("")
        .trim();
    match prompt.rfind(text).filter(|_| !text.is_empty()) {
        Some(start) => {
            prompt.truncate(start + text.len());
            Ok(prompt)
        }
        None => Err(Refusal::invalid(
            "continue_final_message",
            "continue_final_message needs a last message whose text the chat template keeps",
        )),
    }
}
