//! The flags of all options, made from the option table.

use crate::config::{Inputs, NOT_OFFERED, OPTIONS, OptionSpec};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::marker::PhantomData;
use std::path::PathBuf;

/// The options given on the command line, out of those that the command offers.
#[derive(Clone, Debug, Default)]
pub struct ConfigFlags<C> {
    file: Option<PathBuf>,
    words: Vec<(&'static str, String)>,
    command: PhantomData<C>,
}

/// A kind of command: which options it offers.
pub trait Offers {
    /// Whether it offers this one.
    fn offers(spec: &OptionSpec) -> bool;
}

/// Serves: all options.
#[derive(Clone, Debug, Default)]
pub struct Serving;

/// Answers in this process: those of the model, and those of the server that matter here too.
#[derive(Clone, Debug, Default)]
pub struct Answering;

/// Computes with a model that is named apart: those that say where and how.
#[derive(Clone, Debug, Default)]
pub struct Computing;

impl Offers for Serving {
    fn offers(_: &OptionSpec) -> bool {
        true
    }
}

impl Offers for Answering {
    fn offers(spec: &OptionSpec) -> bool {
        let too = ["timeout_ms", "step_timeout_ms", "log_level", "log_format"];
        spec.section != "server_config" || too.contains(&spec.key)
    }
}

impl Offers for Computing {
    fn offers(spec: &OptionSpec) -> bool {
        let offered = [
            "device",
            "threads",
            "dtype",
            "quantize",
            "kv_dtype",
            "log_level",
        ];
        offered.contains(&spec.key)
    }
}

impl<C: Offers> ConfigFlags<C> {
    fn options() -> impl Iterator<Item = &'static OptionSpec> {
        OPTIONS.iter().filter(|spec| C::offers(spec))
    }

    /// These flags with the model that an argument names.
    pub fn with_model(mut self, model: String) -> Self {
        self.words.push(("model", model));
        self
    }

    /// Whether the command line names this option.
    pub fn names(&self, key: &str) -> bool {
        self.words.iter().any(|(name, _)| *name == key)
    }

    /// These flags together with the process's environment.
    pub fn into_inputs(self) -> Inputs {
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        let env = std::env::vars_os()
            .map(|(name, word)| (text(name), text(word)))
            .collect();
        Inputs {
            flags: self.words,
            env,
            file: self.file,
        }
    }
}

impl<C: Offers + Default> FromArgMatches for ConfigFlags<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>("config").cloned();
        let given = |key| matches.value_source(key) == Some(ValueSource::CommandLine);
        let word =
            |spec: &OptionSpec| Some((spec.key, matches.get_one::<String>(spec.key)?.clone()));
        self.words = Self::options().filter_map(word).collect();
        let refused = NOT_OFFERED.iter().filter(|(key, _)| given(*key));
        self.words
            .extend(refused.map(|(key, _)| (*key, String::new())));
        Ok(())
    }
}

impl<C: Offers + Default> Args for ConfigFlags<C> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help_heading(None)
            .value_parser(clap::value_parser!(PathBuf));
        let file =
            file.help("Configuration file in JSON; flags and ROPETEAM_ variables win over it");
        let refused = NOT_OFFERED.iter().map(|(key, _)| refused_flag(key));
        command
            .arg(file)
            .args(Self::options().map(flag))
            .args(refused)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(spec: &'static OptionSpec) -> Arg {
    let default = spec.kind.word(&spec.default.value());
    Arg::new(spec.key)
        .long(spec.flag())
        .value_name(spec.kind.placeholder())
        .help(format!("{} [default: {default}]", spec.summary()))
        .help_heading(match spec.section {
            "model_config" => "Model and batching",
            _ => "Running",
        })
        .hide(spec.hidden())
        // So that "-1" is refused with the option's range and not as an unknown flag.
        .allow_hyphen_values(true)
        .overrides_with(spec.key)
}

/// A flag of others that is understood, so that the refusal can say why.
fn refused_flag(key: &'static str) -> Arg {
    Arg::new(key)
        .long(key.replace('_', "-"))
        .num_args(0..=1)
        .default_missing_value("")
        .hide(true)
}
