//! A model in this very process, for the commands that answer in the terminal.

use super::flags::{Answering, ConfigFlags};
use crate::config::{Config, LogLevel, Origin, resolve};
use crate::exit::Exit;
use crate::logging;
use crate::signals::Signals;
use crate::start_error::StartError;
use crate::wiring::{self, Started};
use ropeteam_actors::Engine;
use ropeteam_engine::request::Prompt;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_models::grammar::Grammars;
use ropeteam_models::text::{ChatTemplate, RenderInput};
use serde_json::Value;
use std::path::Path;

/// A started engine with its model's texts.
pub struct Local {
    /// Runs requests.
    pub engine: Engine,
    /// Ctrl-C and its like.
    pub signals: Signals,
    started: Started,
}

impl Local {
    /// Starts the configured model and does `work` with it.
    ///
    /// # Errors
    /// Why it could not start, or what the work met.
    pub fn run(
        flags: ConfigFlags<Answering>,
        work: impl AsyncFnOnce(Local) -> Result<Exit, StartError>,
    ) -> Result<Exit, StartError> {
        let resolved = resolve(flags.into_inputs())?;
        let mut config = resolved.config.clone();
        if *resolved.origin("log_level") == Origin::Default {
            config.server_config.log_level = LogLevel::Warn;
        }
        logging::start(&config.server_config);
        actix::System::new().block_on(async {
            match Self::start(&config).await? {
                Some(local) => work(local).await,
                None => Ok(Exit::Signal),
            }
        })
    }

    /// `None`: a signal came first.
    async fn start(config: &Config) -> Result<Option<Self>, StartError> {
        let mut signals = Signals::new()?;
        tokio::select! {
            started = wiring::start(config) => {
                let started = started?;
                Ok(Some(Local { engine: started.engine.clone(), signals, started }))
            }
            _ = signals.next() => Ok(None),
        }
    }

    /// The model's folder or file.
    pub fn files(&self) -> Option<&Path> {
        self.started.files.as_deref()
    }

    /// The engine, what compiles what answers must obey, and the signals: for work that a signal ends.
    pub fn parts(&mut self) -> (&Engine, &Grammars, &mut Signals) {
        (&self.engine, &self.started.grammars, &mut self.signals)
    }

    /// What the model is called.
    pub fn model_name(&self) -> &str {
        self.started.model.name()
    }

    /// Sampling values where the command names none.
    pub fn defaults(&self) -> &SamplingParams {
        &self.started.defaults
    }

    /// The model's chat template.
    ///
    /// # Errors
    /// That it has none, or none that can be used.
    pub fn chat_template(&self) -> Result<&ChatTemplate, StartError> {
        let template = self.started.chat.as_deref();
        template.map_err(|problem| StartError::Model(problem.clone()))
    }

    /// The prompt for an answer to these turns.
    ///
    /// # Errors
    /// Without a chat template, or when it refuses these turns.
    pub fn chat_prompt(&self, turns: &[Value]) -> Result<Prompt, StartError> {
        let rendered = self.chat_template()?.render(&RenderInput::new(turns));
        let text = rendered.map_err(|error| StartError::Model(error.to_string()))?;
        // A rendered chat holds its begin token already.
        Ok(Prompt::Text {
            text,
            add_special_tokens: false,
        })
    }
}
