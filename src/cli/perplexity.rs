//! `ropeteam perplexity`: how well a model predicts a text, and what rounding its weights cost.

use super::ending;
use super::flags::{Computing, ConfigFlags};
use super::meter::Meter;
use super::output;
use crate::config::{Config, Dtype, resolve};
use crate::exit::Exit;
use crate::logging;
use crate::start_error::StartError;
use crate::wiring::direct::{DirectModel, Reach};
use ropeteam_engine::executor::StepExecutor;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::TextCodec;
use ropeteam_models::perplexity::{Comparison, Scores, Scoring, score};
use serde_json::json;
use std::path::PathBuf;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct PerplexityArgs {
    /// The model: a folder, a GGUF file or org/name; left out: the default model
    model: Option<String>,
    /// File with the text
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Score the text in separate windows of so many tokens [default: in one pass, as far as the model reaches]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    window: Option<u32>,
    /// What to compare with, in f32 arithmetic: f32 (the model itself), another model, or none
    #[arg(long, value_name = "MODEL", default_value = "f32")]
    reference: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigFlags<Computing>,
}

/// Bytes of logits of one step.
const STEP_BYTES: usize = 32 << 20;

/// Runs the command.
///
/// # Errors
/// What is wrong with the model, the text or the device.
pub fn run(args: PerplexityArgs) -> Result<Exit, StartError> {
    ending::at_signal(|| {})?;
    let text = std::fs::read_to_string(&args.text)
        .map_err(|error| StartError::Usage(format!("--text: {}: {error}", args.text.display())))?;
    let flags = match &args.model {
        Some(model) => args.config.clone().with_model(model.clone()),
        None => args.config.clone(),
    };
    let config = resolve(flags.into_inputs())?.config;
    logging::start(&config.server_config);
    let model = DirectModel::open(&config)?;
    let reference = reference(&args.reference, &config, &model)?;
    let ids = ids(&model, &text)?;
    let scoring = scoring(&args, &model, ids.len());
    let reach = Reach {
        tokens: scoring.window as u32,
        step: scoring.step as u32,
    };
    let mut runner = model.load(reach)?;
    let second = reference.as_ref().map(|reference| reference.load(reach));
    let mut second = second.transpose()?;
    let second = second
        .as_mut()
        .map(|runner| runner as &mut dyn StepExecutor);
    let meter = Meter::new(ids.len(), "tokens");
    let scores = score(&mut runner, second, &ids, scoring, &mut |done| {
        meter.at(done)
    });
    let scores = scores.map_err(|fault| StartError::Device(fault.to_string()))?;
    drop(meter);
    let report = Report {
        args: &args,
        model: &model,
        reference: reference.as_ref(),
        ids: ids.len(),
        scoring,
        scores,
    };
    output::print(&match args.json {
        true => report.json(),
        false => report.text(),
    })?;
    Ok(Exit::Done)
}

/// The model to compare with. A model that runs in f32 is not compared with itself.
fn reference(
    wanted: &str,
    config: &Config,
    model: &DirectModel,
) -> Result<Option<DirectModel>, StartError> {
    let mut config = config.clone();
    match wanted {
        "none" => return Ok(None),
        "f32" if model.is_f32() => return Ok(None),
        "f32" => {}
        other => other.clone_into(&mut config.model_config.model),
    }
    if !model.has_f32() {
        // The NPU has no arithmetic in f32; the CPU of the same machine does.
        "cpu".clone_into(&mut config.model_config.device);
        config.model_config.dtype = Dtype::F32;
    }
    let found = DirectModel::open(&config)?.in_f32();
    if found.spec.vocab != model.spec.vocab {
        return Err(StartError::Usage(format!(
            "--reference: {} has a vocabulary of {}, {} one of {}",
            found.name, found.spec.vocab, model.name, model.spec.vocab
        )));
    }
    Ok(Some(found))
}

fn ids(model: &DirectModel, text: &str) -> Result<Vec<TokenId>, StartError> {
    let ids = model.codec.encode(text, false);
    let ids = ids.map_err(|error| StartError::Other(error.to_string()))?;
    if ids.len() < 2 {
        let what = format!("--text: {} tokens; at least 2 are needed", ids.len());
        return Err(StartError::Usage(what));
    }
    Ok(ids)
}

fn scoring(args: &PerplexityArgs, model: &DirectModel, tokens: usize) -> Scoring {
    let asked = args.window.map_or(usize::MAX, |window| window as usize);
    let window = tokens.min(asked).min(model.spec.max_positions);
    let step = STEP_BYTES / size_of::<f32>() / model.spec.vocab;
    Scoring {
        window,
        step: step.clamp(16, 512).min(window),
    }
}

/// What was measured of what.
struct Report<'a> {
    args: &'a PerplexityArgs,
    model: &'a DirectModel,
    reference: Option<&'a DirectModel>,
    ids: usize,
    scoring: Scoring,
    scores: Scores,
}

impl Report<'_> {
    fn compared(&self) -> Option<(&DirectModel, Comparison)> {
        self.reference.zip(self.scores.reference)
    }

    fn text(&self) -> String {
        let scores = &self.scores;
        let how = match self.scoring.window {
            window if window < self.ids => format!("in windows of {window}"),
            _ => "in one pass".to_owned(),
        };
        let file = self.args.text.display();
        let mut text = format!("text        {file}: {} tokens {how}\n", self.ids);
        text += &line("model", self.model, scores.mean_nll());
        if let Some((reference, compared)) = self.compared() {
            let nll = scores.mean(compared.nll);
            text += &line("reference", reference, nll);
            text += &format!(
                "difference  nll {:+.4}, KL divergence {:.5}, same best token {:.2} %\n",
                scores.mean_nll() - nll,
                scores.mean(compared.divergence),
                100.0 * scores.mean(compared.same_best as f64)
            );
        }
        text
    }

    fn json(&self) -> String {
        let scores = &self.scores;
        let facts = |model: &DirectModel, nll: f64| {
            json!({
                "name": model.name,
                "dtype": model.weights().dtype(),
                "nll": nll,
                "perplexity": nll.exp(),
            })
        };
        let mut report = json!({
            "text": self.args.text,
            "tokens": self.ids,
            "scored_tokens": scores.tokens,
            "window": self.scoring.window,
            "model": facts(self.model, scores.mean_nll()),
        });
        if let Some((reference, compared)) = self.compared() {
            report["reference"] = facts(reference, scores.mean(compared.nll));
            report["kl_divergence"] = json!(scores.mean(compared.divergence));
            report["same_best_token"] = json!(scores.mean(compared.same_best as f64));
        }
        format!("{report}\n")
    }
}

fn line(what: &str, model: &DirectModel, nll: f64) -> String {
    let (name, dtype) = (&model.name, model.weights().dtype());
    format!(
        "{what:<11} {name} ({dtype}): nll {nll:.4}, perplexity {:.3}\n",
        nll.exp()
    )
}
