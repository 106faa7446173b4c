//! Chat templates with Hugging Face's semantics: where they stand, and from messages to one prompt.
//! Not here: which messages a dialect allows (the server), tokenising the prompt (`codec.rs`).
//!
//! | file | what |
//! | --- | --- |
//! | `locate.rs` | the files that may hold a model's templates |
//! | `dialect.rs` | what transformers' Jinja has and the engine lacks, bridged in the source |
//! | `environment.rs` | the engine with transformers' filters, functions and limits |
//! | `methods.rs`, `python.rs`, `tojson.rs` | Python's string methods, printing and JSON |
//! | `messages.rs` | messages as templates expect them |

mod dialect;
mod environment;
mod locate;
mod messages;
mod methods;
mod python;
mod tojson;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value as Jinja};
use serde_json::{Map, Value};

pub use environment::Clock;

use super::{SpecialTokens, TemplateError};
use environment::{FUEL, REFUSAL};
use locate::Located;
use messages::ContentForm;

/// Name of the template that is used when no other fits.
const DEFAULT: &str = "default";
/// Name of the template that is used when there are tools.
const TOOL_USE: &str = "tool_use";

/// A model's chat templates, compiled. A model without any has one too: it renders nothing but
/// [`TemplateError::Missing`].
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: SpecialTokens,
    /// The templates as they were written, by name.
    sources: BTreeMap<String, String>,
    form: ContentForm,
}

/// What a prompt is rendered from.
#[derive(Clone, Copy, Debug)]
pub struct RenderInput<'a> {
    /// Messages as OpenAI's chat route has them: objects with `role`, `content` (text, text parts or null),
    /// `tool_calls` (arguments as a JSON string or an object), and whatever else the template reads.
    pub messages: &'a [Value],
    /// Tool definitions; none and an empty list are the same.
    pub tools: &'a [Value],
    /// Whether the prompt ends where the assistant's answer starts.
    pub add_generation_prompt: bool,
    /// Further variables (`enable_thinking`, ...); they win over all others but messages and tools.
    pub variables: Option<&'a Map<String, Value>>,
}

impl<'a> RenderInput<'a> {
    /// Messages to be answered, with nothing else.
    pub fn new(messages: &'a [Value]) -> Self {
        Self {
            messages,
            tools: &[],
            add_generation_prompt: true,
            variables: None,
        }
    }
}

impl ChatTemplate {
    /// Loads the templates of a model folder: `chat_template.jinja` (and `additional_chat_templates/*.jinja`), else
    /// `chat_template` of tokenizer_config.json (one, or a list of named ones), else `chat_template.json`.
    ///
    /// # Errors
    /// When a file cannot be read, or a template does not compile: the error names file and line.
    pub fn load(folder: &Path, special_tokens: &SpecialTokens) -> Result<Self, TemplateError> {
        Self::compile(locate::in_folder(folder)?, special_tokens.clone())
    }

    /// A single template from its source; `origin` names it in errors.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn from_source(
        source: &str,
        origin: &str,
        special_tokens: &SpecialTokens,
    ) -> Result<Self, TemplateError> {
        Self::named([(DEFAULT, source)], origin, special_tokens)
    }

    /// Named templates (`default`, `tool_use`) from their sources; none at all is allowed.
    ///
    /// # Errors
    /// When one does not compile.
    pub fn named<'s>(
        templates: impl IntoIterator<Item = (&'s str, &'s str)>,
        origin: &str,
        special_tokens: &SpecialTokens,
    ) -> Result<Self, TemplateError> {
        let located = templates.into_iter().map(|(name, source)| Located {
            name: name.to_owned(),
            source: source.to_owned(),
            origin: origin.to_owned(),
        });
        Self::compile(located.collect(), special_tokens.clone())
    }

    /// The same with another clock for `strftime_now`.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        environment::set_clock(&mut self.environment, clock);
        self
    }

    /// Whether the model has a template.
    pub fn exists(&self) -> bool {
        !self.sources.is_empty()
    }

    /// The template that is used without tools, as it was written.
    pub fn source(&self) -> Option<&str> {
        self.sources.get(DEFAULT).map(String::as_str)
    }

    /// Whether any of the templates writes `mark` or looks for it.
    pub fn mentions(&self, mark: &str) -> bool {
        let template = |name: &String| self.environment.get_template(name).ok();
        let mut templates = self.sources.keys().filter_map(template);
        templates.any(|template| template.source().contains(mark))
    }

    /// Renders the prompt. It holds the begin token if the template writes one: tokenise it without special tokens.
    ///
    /// # Errors
    /// `Missing`, or what is wrong with these messages; see [`TemplateError`]. A template cannot make it panic, run on
    /// or read a file.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, TemplateError> {
        let name = self.choose(!input.tools.is_empty())?;
        let prepared = messages::prepare(input.messages, self.form)?;
        let first = self.render_prepared(name, &prepared.messages, input);
        match (first, prepared.with_argument_text) {
            // Most templates want the arguments of a tool call as a mapping, a few add them to a string.
            (Err(TemplateError::Failed(reason)), Some(messages)) => self
                .render_prepared(name, &messages, input)
                .map_err(|_| TemplateError::Failed(reason)),
            (result, _) => result,
        }
    }

    fn compile(
        templates: Vec<Located>,
        special_tokens: SpecialTokens,
    ) -> Result<Self, TemplateError> {
        let mut environment = environment::new();
        let mut sources = BTreeMap::new();
        for Located {
            name,
            source,
            origin,
        } in templates
        {
            let bridged = dialect::bridge(&source).map_err(|e| TemplateError::Syntax {
                origin: origin.clone(),
                line: e.line,
                detail: e.detail,
            })?;
            let syntax = |line, detail| TemplateError::Syntax {
                origin: origin.clone(),
                line,
                detail,
            };
            // As in `render_prepared`: the engine panics at some names that are none (`import … as 'text'`).
            let added = catch_unwind(AssertUnwindSafe(|| {
                environment.add_template_owned(name.clone(), bridged)
            }));
            added
                .map_err(|_| syntax(1, "the template engine panicked".to_owned()))?
                .map_err(|e| {
                    let detail = e.detail();
                    let detail = detail.map_or_else(|| e.kind().to_string(), str::to_owned);
                    syntax(e.line().unwrap_or(1), detail)
                })?;
            sources.insert(name, source);
        }
        let mut template = Self {
            environment,
            special_tokens,
            sources,
            form: ContentForm::Text,
        };
        template.form = template.probe_form();
        template.environment.set_fuel(Some(FUEL));
        Ok(template)
    }

    /// Finds out whether the template reads content as text, by rendering one message both ways.
    fn probe_form(&self) -> ContentForm {
        const PROBE: &str = "ropeteam probes the template";
        let message = [serde_json::json!({"role": "user", "content": PROBE})];
        let input = RenderInput::new(&message);
        let shows_probe = |form| {
            let rendered = self.choose(false).and_then(|name| {
                let prepared = messages::prepare(&message, form)?;
                self.render_prepared(name, &prepared.messages, &input)
            });
            rendered.is_ok_and(|prompt| prompt.contains(PROBE))
        };
        if !shows_probe(ContentForm::Text) && shows_probe(ContentForm::Parts) {
            return ContentForm::Parts;
        }
        ContentForm::Text
    }

    fn choose(&self, with_tools: bool) -> Result<&'static str, TemplateError> {
        [(TOOL_USE, with_tools), (DEFAULT, true)]
            .into_iter()
            .find(|(name, fits)| *fits && self.sources.contains_key(*name))
            .map(|(name, _)| name)
            .ok_or(TemplateError::Missing)
    }

    fn render_prepared(
        &self,
        name: &str,
        messages: &[Value],
        input: &RenderInput<'_>,
    ) -> Result<String, TemplateError> {
        let context = self.context(messages, input);
        // The engine is a foreign interpreter fed by foreign programs: a panic in it fails this one request.
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.environment.get_template(name)?.render(context)
        }));
        match result {
            Ok(rendered) => rendered.map_err(|e| failure(&e)),
            Err(_) => Err(TemplateError::Failed(
                "the template engine panicked".to_owned(),
            )),
        }
    }

    fn context(&self, messages: &[Value], input: &RenderInput<'_>) -> Jinja {
        let mut context: BTreeMap<&str, Jinja> = self
            .special_tokens
            .iter()
            .map(|(name, text)| (name, Jinja::from(text)))
            .collect();
        context.insert("add_generation_prompt", input.add_generation_prompt.into());
        context.insert("documents", Jinja::from(()));
        for (name, value) in input.variables.into_iter().flatten() {
            context.insert(name, Jinja::from(Serde(value)));
        }
        context.insert("messages", Jinja::from(Serde(messages)));
        let tools = (!input.tools.is_empty()).then(|| Jinja::from(Serde(input.tools)));
        context.insert("tools", tools.unwrap_or(Jinja::from(())));
        Jinja::from_pairs(context)
    }
}

/// An engine's error in our terms.
fn failure(error: &minijinja::Error) -> TemplateError {
    if error.kind() == ErrorKind::OutOfFuel {
        return TemplateError::TooExpensive;
    }
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    if let Some(refusal) = detail.strip_prefix(REFUSAL) {
        return TemplateError::Refused(refusal.to_owned());
    }
    match error.line() {
        Some(line) => TemplateError::Failed(format!("{detail} (line {line})")),
        None => TemplateError::Failed(detail),
    }
}

#[cfg(test)]
mod tests;
