//! `ropeteam bench`: its flags, and those of the benchmark tool that comes with Ascend's servers.

use super::{ending, output};
use crate::bench::api::{Api, Task};
use crate::bench::arrivals::Rate;
use crate::bench::dataset::{DatasetKind, DatasetPlan, IdRange, PromptAs};
use crate::bench::lengths::Lengths;
use crate::bench::load::Pace;
use crate::bench::plan::Plan;
use crate::bench::target::Target;
use crate::bench::{self, Outputs};
use crate::exit::Exit;
use crate::start_error::StartError;
use std::path::PathBuf;
use std::time::Duration;

/// Requests at once where the flags leave it open.
const CONCURRENCY: usize = 16;

/// What to measure, and how.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    /// The server, as http://HOST:PORT
    #[arg(
        long,
        alias = "Http",
        value_name = "URL",
        required_unless_present = "compare"
    )]
    url: Option<Target>,
    /// API to use; left out: OpenAI's if the server has /v1/models, else TGI's
    #[arg(long, value_name = "API", value_enum)]
    api: Option<Api>,
    /// Model to ask for; left out: the first that the server names
    #[arg(long, alias = "ModelName", value_name = "NAME")]
    model: Option<String>,
    /// Tokenizer: a model folder, tokenizer.json or GGUF file; left out: of the model's folder, if that is on this machine
    #[arg(long, alias = "ModelPath", value_name = "PATH")]
    tokenizer: Option<PathBuf>,
    /// Stream answers, or wait for whole ones
    #[arg(
        long,
        alias = "TaskKind",
        value_name = "KIND",
        default_value = "stream"
    )]
    task: Task,
    /// Sampling temperature; 0: always the likeliest token
    #[arg(long, value_name = "T", default_value = "0")]
    temperature: f64,
    /// Sent as a bearer token
    #[arg(long, value_name = "KEY", conflicts_with = "api_key_file")]
    api_key: Option<String>,
    /// File that holds the key
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Seconds that a request may take
    #[arg(long, value_name = "SECONDS", default_value = "600")]
    timeout: f64,
    /// A connection for each request (for servers that close kept ones without saying so)
    #[arg(long)]
    no_keepalive: bool,
    #[command(flatten)]
    asked: AskedArgs,
    #[command(flatten)]
    sent: SentArgs,
    #[command(flatten)]
    told: ToldArgs,
    /// The other tool's kind of test; "client" is this one
    #[arg(long = "TestType", value_name = "TYPE", hide = true)]
    test_type: Option<String>,
}

/// What else can be measured.
#[derive(Debug, clap::Subcommand)]
enum BenchCommand {
    /// Measure the kernels of this machine against its limits, without any server
    Kernels {
        /// Threads to use; left out: one per core
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        /// Write all figures
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

/// What is asked.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is asked")]
struct AskedArgs {
    /// Where prompts come from
    #[arg(
        long,
        alias = "DatasetType",
        value_name = "KIND",
        default_value = "random",
        ignore_case = true
    )]
    dataset: DatasetKind,
    /// The dataset's file, or a folder with one file
    #[arg(long, alias = "DatasetPath", value_name = "PATH")]
    dataset_path: Option<PathBuf>,
    /// Tokens of random prompts: 128, 64..256 (uniform) or normal(128,32)
    #[arg(long, value_name = "LENGTH", default_value = "128")]
    input_len: Lengths,
    /// Tokens that all random prompts begin with, before their own
    #[arg(long, value_name = "TOKENS", default_value = "0")]
    shared_prefix: u32,
    /// How random prompts are sent; left out: as text with a tokenizer, as ids without one where the API takes ids
    #[arg(long, value_name = "FORM")]
    prompt: Option<PromptAs>,
    /// Token ids to draw from without a tokenizer
    #[arg(long, value_name = "LOW..HIGH", default_value_t)]
    ids: IdRange,
    /// Tokens to ask for, as for --input-len; left out: what the dataset says, else --max-output-len, else 128
    #[arg(long, value_name = "LENGTH")]
    output_len: Option<Lengths>,
    /// Most tokens to ask for
    #[arg(long, alias = "MaxOutputLen", value_name = "TOKENS")]
    max_output_len: Option<u32>,
    /// Go on after the token that ends an answer [default: true for random prompts]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ignore_eos: Option<bool>,
    /// Of everything random: the same seed asks the same
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

/// When requests are sent.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "When requests are sent")]
struct SentArgs {
    /// Requests; left out: as many as the file has prompts, 64 random ones
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Requests at once [default: 16]; with --request-rate a bound, and waiting for a place counts
    #[arg(long, alias = "Concurrency", value_name = "N")]
    concurrency: Option<usize>,
    /// Requests per second, at random times (Poisson), whatever the answers do; inf: all at once
    #[arg(long, value_name = "RATE")]
    request_rate: Option<Rate>,
    /// Requests to send before, which do not count
    #[arg(long, value_name = "N", default_value = "0")]
    warm_up: usize,
}

/// How the result is told.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Results")]
struct ToldArgs {
    /// Write all figures
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a line per request
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Only compare two files that --json wrote
    #[arg(long, value_names = ["A.json", "B.json"], num_args = 2, conflicts_with = "url")]
    compare: Option<Vec<PathBuf>>,
    /// Measure this server too, in turn with the first, and print medians and ratios
    #[arg(long, value_name = "URL", conflicts_with_all = ["json", "csv", "html"])]
    against: Option<Target>,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value = "3", requires = "against")]
    rounds: u32,
}

/// Runs the command.
///
/// # Errors
/// When the flags are wrong or there is nobody to measure.
pub fn run(args: BenchArgs) -> Result<Exit, StartError> {
    if let Some(BenchCommand::Kernels { threads, json }) = args.command {
        return kernels(threads, json);
    }
    if let Some([a, b]) = args.told.compare.as_deref() {
        output::print(&bench::compare(a, b)?)?;
        return Ok(Exit::Done);
    }
    let plan = plan(&args)?;
    let told = &args.told;
    let outputs = Outputs::open(
        told.json.as_deref(),
        told.csv.as_deref(),
        told.html.as_deref(),
    )?;
    let finished = bench::run(&plan, &command(std::env::args()), outputs)?;
    output::print(&finished.text)?;
    Ok(match (finished.stopped, finished.good) {
        (true, _) => Exit::Signal,
        (false, true) => Exit::Done,
        (false, false) => Exit::Failed,
    })
}

fn kernels(threads: Option<u16>, json: Option<PathBuf>) -> Result<Exit, StartError> {
    let outputs = Outputs::open(json.as_deref(), None, None)?;
    ending::at_signal(|| {})?;
    let report = bench::kernels::run(threads.map(usize::from))?;
    outputs.write_kernels(&report)?;
    output::print(&report.text())?;
    Ok(Exit::Done)
}

fn plan(args: &BenchArgs) -> Result<Plan, StartError> {
    let usage = |problem: &str| StartError::Usage(problem.to_owned());
    if args
        .test_type
        .as_deref()
        .is_some_and(|kind| kind != "client")
    {
        let problem = "--TestType: only \"client\" is built, which drives a server by HTTP";
        return Err(usage(problem));
    }
    let (asked, sent) = (&args.asked, &args.sent);
    if sent.requests == Some(0) || sent.concurrency == Some(0) || args.told.rounds == 0 {
        return Err(usage("--requests, --concurrency and --rounds count from 1"));
    }
    if !(args.timeout > 0.0 && args.timeout <= 1e6) {
        return Err(usage("--timeout: more than 0 and at most 1000000 seconds"));
    }
    if !(0.0..=2.0).contains(&args.temperature) {
        return Err(usage("--temperature: from 0 to 2"));
    }
    if args.told.against.is_some() && args.told.against == args.url {
        return Err(usage("--against: another server than --url"));
    }
    Ok(Plan {
        target: args.url.clone().ok_or_else(|| usage("--url is needed"))?,
        against: args.told.against.clone(),
        rounds: args.told.rounds,
        api: args.api,
        task: args.task,
        model: args.model.clone(),
        tokenizer: args.tokenizer.clone(),
        dataset: DatasetPlan {
            kind: asked.dataset,
            path: asked.dataset_path.clone(),
            requests: sent.requests,
            input_len: asked.input_len,
            shared_prefix: asked.shared_prefix,
            prompt_as: PromptAs::Text,
            ids: asked.ids,
            output_len: asked.output_len,
            max_output_len: asked.max_output_len,
            seed: asked.seed,
        },
        prompt_as: asked.prompt,
        pace: pace(sent, asked.seed),
        warm_up: sent.warm_up,
        temperature: args.temperature,
        ignore_eos: asked.ignore_eos,
        api_key: api_key(args)?,
        timeout: Duration::from_secs_f64(args.timeout),
        keep_alive: !args.no_keepalive,
    })
}

fn pace(sent: &SentArgs, seed: u64) -> Pace {
    match sent.request_rate {
        Some(rate) => Pace::Open {
            rate,
            limit: sent.concurrency,
            seed,
        },
        None => Pace::Closed {
            concurrency: sent.concurrency.unwrap_or(CONCURRENCY),
        },
    }
}

fn api_key(args: &BenchArgs) -> Result<Option<String>, StartError> {
    let Some(file) = &args.api_key_file else {
        return Ok(args.api_key.clone());
    };
    let wrong = |error| StartError::Usage(format!("{}: {error}", file.display()));
    let key = std::fs::read_to_string(file).map_err(wrong)?;
    Ok(Some(key.trim().to_owned()))
}

/// The command line as a shell takes it, without the key.
fn command(words: impl Iterator<Item = String>) -> String {
    let mut hide_next = false;
    let mut shown = Vec::new();
    for word in words {
        let hidden = std::mem::replace(&mut hide_next, word == "--api-key");
        shown.push(match word.split_once('=') {
            _ if hidden => "KEY".to_owned(),
            Some(("--api-key", _)) => "--api-key=KEY".to_owned(),
            _ => quoted(&word),
        });
    }
    shown.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn planned(words: &str) -> Result<Plan, String> {
        let words = std::iter::once("bench").chain(words.split_whitespace());
        let only = Only::try_parse_from(words).map_err(|error| error.to_string())?;
        plan(&only.args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_articles_command_line_is_understood() {
        let plan = planned(
            "--DatasetPath /path/to/dataset --DatasetType humaneval --ModelName Qwen2-7B --ModelPath /path/to/model \
             --TestType client --Http http://127.0.0.1:1025 --Concurrency 128 --TaskKind stream --MaxOutputLen 512",
        )
        .unwrap();
        assert_eq!(plan.target.to_string(), "http://127.0.0.1:1025");
        assert_eq!(plan.dataset.kind, DatasetKind::HumanEval);
        assert_eq!(plan.dataset.path, Some("/path/to/dataset".into()));
        assert_eq!(plan.model.as_deref(), Some("Qwen2-7B"));
        assert_eq!(plan.tokenizer, Some("/path/to/model".into()));
        assert_eq!(plan.pace, Pace::Closed { concurrency: 128 });
        assert_eq!(
            (plan.task, plan.dataset.max_output_len),
            (Task::Stream, Some(512))
        );
        assert!(!plan.ignores_eos());
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        for (words, named) in [
            ("--Http h --TestType engine", "--TestType"),
            ("", "--url"),
            ("--url https://h", "https"),
            ("--url h --requests 0", "--requests"),
            ("--url h --timeout 0", "--timeout"),
            ("--url h --temperature 3", "--temperature"),
            ("--url h --dataset mmlu", "mmlu"),
            ("--url h --input-len none", "none"),
            ("--url h --request-rate 0", "requests per second"),
            ("--url h --compare a b", "--compare"),
        ] {
            let error = planned(words).unwrap_err();
            assert!(error.contains(named), "{words}: {error}");
        }
    }

    #[test]
    fn random_answers_go_on_after_their_end_unless_told_otherwise() {
        assert!(planned("--url h").unwrap().ignores_eos());
        assert!(!planned("--url h --ignore-eos=false").unwrap().ignores_eos());
        assert!(
            planned("--url h --dataset gsm8k --ignore-eos")
                .unwrap()
                .ignores_eos()
        );
    }

    #[test]
    fn the_command_in_a_report_can_be_pasted_and_holds_no_key() {
        let words = [
            "ropeteam",
            "bench",
            "--api-key",
            "secret",
            "--model",
            "a b",
            "--api-key=secret",
        ];
        let text = command(words.into_iter().map(str::to_owned));
        assert_eq!(
            text,
            "ropeteam bench --api-key KEY --model 'a b' --api-key=KEY"
        );
    }
}
