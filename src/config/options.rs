//! Every option, once: its key, what it means, the values it takes and its default. The flag is the key with dashes, the
//! environment variable the key in capitals after `ROPETEAM_`. `--help`, `config show`, the reference and the error
//! messages are all made from this table. To add an option, add an entry here and its default in config/config.json.

use super::kind::Kind::{self, *};
use super::kind::MemoryBudget;
use serde_json::Value;
use std::path::PathBuf;

/// The default of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// `null`: what the option's kind calls it.
    Null,
    /// A number.
    Number(i64),
    /// A switch.
    On(bool),
    /// A text.
    Word(&'static str),
}
use Initial::*;

impl Initial {
    /// As JSON.
    pub fn value(self) -> Value {
        match self {
            Null => Value::Null,
            Number(number) => Value::from(number),
            On(on) => Value::Bool(on),
            Word(word) => Value::from(word),
        }
    }
}

/// What is known about one option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionSpec {
    /// The object it stands in, in a configuration file.
    pub section: &'static str,
    /// Its key there.
    pub key: &'static str,
    /// What it means; the first line is the short form.
    pub doc: &'static [&'static str],
    /// The values it takes.
    pub kind: Kind,
    /// What holds when nobody sets it.
    pub default: Initial,
}

impl OptionSpec {
    /// Name of its flag, without the dashes in front.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// Name of its environment variable.
    pub fn env(&self) -> String {
        format!("ROPETEAM_{}", self.key.to_uppercase())
    }

    /// Test hooks are left out of `--help` and of the embedded default.
    pub fn hidden(&self) -> bool {
        self.section == "debug_config"
    }

    /// What it means, in one line.
    pub fn summary(&self) -> String {
        self.doc
            .iter()
            .map(|line| line.trim())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Declares the typed sections and the table from one list of entries:
/// `key: type = kind => default;` with a doc comment that becomes the help text.
macro_rules! options {
    ($( $(#[doc = $about:literal])* $section:ident: $name:ident {
        $( $(#[doc = $doc:literal])+ $key:ident: $type:ty = $kind:expr => $default:expr; )*
    } )*) => {
        $(
            $(#[doc = $about])*
            #[derive(Clone, Debug, serde::Deserialize)]
            pub struct $name { $( $(#[doc = $doc])+ pub $key: $type, )* }
        )*

        /// The effective configuration.
        #[derive(Clone, Debug, serde::Deserialize)]
        pub struct Config { $( $(#[doc = $about])* pub $section: $name, )* }

        /// Every option.
        pub static OPTIONS: &[OptionSpec] = &[ $( $( OptionSpec {
            section: stringify!($section),
            key: stringify!($key),
            doc: &[$($doc),+],
            kind: $kind,
            default: $default,
        }, )* )* ];
    };
}

/// A day, in milliseconds.
const DAY: i64 = 24 * 60 * 60 * 1000;
/// More blocks, tokens or bytes than any machine has.
const MANY: i64 = 1 << 40;

options! {
    /// The model and how it is batched.
    model_config: ModelConfig {
        /// Model to serve: a folder in Hugging Face format, a GGUF file, or org/name on the Hugging Face hub.
        model: String = Text => Word("SmolLM2-135M-Instruct");
        /// Name that clients give the model; auto: its folder's, file's or hub name.
        served_name: Option<String> = Or("auto", &Text) => Null;
        /// Device to compute on: cpu, ascend (an Ascend NPU; ascend:1 for the second one, ascend:0,1 for two), or simulated (no
        /// weights, for demos and load tests).
        device: String = Text => Word("cpu");
        /// So many devices of that kind, each with its own weights and KV cache; threads and memory are divided among them.
        device_count: u16 = Int(1, 64) => Number(1);
        /// What a crash of a device ends: the server (thread), or only the device's own process, which is replaced (process).
        isolation: Isolation = Choice(&["thread", "process"]) => Word("thread");
        /// Time that the simulated device takes: model (that of a small model on two cores), or none (it answers at once,
        /// which shows what the engine itself costs).
        simulated_time: SimulatedTime = Choice(&["model", "none"]) => Word("model");
        /// Threads that compute; auto: one per core that the process may use.
        threads: Option<usize> = Or("auto", &Int(1, 1024)) => Null;
        /// Arithmetic of weights and KV cache where they are not quantised; auto: f32 for f32 checkpoints on the CPU, else bf16. f16: on Ascend only.
        dtype: Dtype = Choice(&["auto", "f32", "bf16", "f16"]) => Word("auto");
        /// Weights in few bits: as the file holds them (auto), widened to --dtype (none), or rounded at load (int8, int4).
        quantize: Quantize = Choice(&["auto", "none", "int8", "int4"]) => Word("auto");
        /// Numbers of the KV cache; auto: f32 with --dtype f32, else bf16.
        kv_dtype: KvDtype = Choice(&["auto", "bf16", "int8"]) => Word("auto");
        /// Steps in which all sequences decode run as graphs, one for each batch size, instead of operator by operator; on Ascend only.
        npu_graphs: bool = Switch => On(true);
        /// Longest sequence in tokens, prompt and output together; auto: what the model was made for.
        max_model_len: Option<u32> = Or("auto", &Int(1, 1 << 24)) => Null;
        /// Longest prompt in tokens; none: what --max-model-len leaves.
        max_input_tokens: Option<u32> = Or("none", &Int(1, 1 << 24)) => Null;
        /// Most tokens of an output, whatever a request asks for; none: what --max-model-len leaves.
        max_output_tokens: Option<u32> = Or("none", &Int(1, 1 << 24)) => Null;
        /// Blocks in the KV cache; auto: what fits into --kv-memory.
        kv_blocks: Option<u32> = Or("auto", &Int(1, 1 << 24)) => Null;
        /// Tokens per block of the KV cache; auto: 16 on the CPU, 128 on Ascend.
        kv_block_size: Option<u32> = Or("auto", &Int(1, 1024)) => Null;
        /// Memory for the KV cache: a size ("4GiB") or a share of what is free after loading ("25%").
        kv_memory: MemoryBudget = Memory => Word("25%");
        /// Reuse the KV cache of prompts with the same beginning.
        prefix_cache: bool = Switch => On(true);
        /// Most sequences that run at once; auto: as many as one step may decode.
        max_running: Option<u32> = Or("auto", &Int(1, 4096)) => Null;
        /// Most sequences that one step prefills.
        max_prefill_batch_size: u32 = Int(1, 4096) => Number(32);
        /// Most prompt tokens that one step prefills.
        max_prefill_tokens: u32 = Int(1, 1 << 20) => Number(1024);
        /// Most tokens of one prompt that one step prefills; longer prompts take several steps.
        prefill_chunk_tokens: u32 = Int(1, 1 << 20) => Number(512);
        /// Most sequences that one step decodes.
        max_decode_batch_size: u32 = Int(1, 4096) => Number(64);
        /// Who goes first when both wait: 0 prefill (low latency of the first token), 1 decode (steady streams).
        support_select_batch: u8 = Int(0, 1) => Number(0);
        /// New sequences join a running batch; off: a batch runs to its end first, for comparison.
        continuous_batching: bool = Switch => On(true);
        /// Guess tokens ahead and check several in one step: off, or ngram (what followed the last time the text went like this). The
        /// output is the same; text that repeats itself comes sooner.
        speculate: Speculate = Choice(&["off", "ngram"]) => Word("off");
        /// Take the sampling values that a request leaves out from the model's generation_config.json.
        generation_config: bool = Switch => On(true);
        /// Chat template to use in place of the model's own, a Jinja file.
        chat_template: Option<PathBuf> = Or("model", &Path) => Null;
        /// How the hidden states of a text become its embedding: mean (of all tokens), or last (that of the last token).
        pooling: PoolingChoice = Choice(&["mean", "last"]) => Word("mean");
        /// How the model writes calls of tools: auto (by its chat template), off (they stay text), or one of the formats.
        tool_parser: ToolParser = Choice(&["auto", "off", "hermes", "llama3", "mistral", "glm4", "glm45", "json"]) => Word("auto");
        /// How the model marks its thoughts: auto (by its chat template), off (they stay text), qwen3 and glm (it may begin with
        /// <think>), or deepseek (it begins inside).
        reasoning_parser: ReasoningParser = Choice(&["auto", "off", "qwen3", "glm", "deepseek"]) => Word("auto");
    }

    /// What clients and operators meet.
    server_config: ServerConfig {
        /// Address to listen on; 0.0.0.0 for all.
        host: String = Text => Word("127.0.0.1");
        /// Port of the inference routes; 0: any free one, which the log names.
        port: u16 = Int(0, 65535) => Number(1025);
        /// Port of the management routes; off: none. When only the other port is set, this one is off, so that several servers can share a machine.
        management_port: Option<u16> = Or("off", &Int(0, 65535)) => Number(1026);
        /// Port of /metrics alone, for a scraper that may reach nothing else; off: none.
        metrics_port: Option<u16> = Or("off", &Int(0, 65535)) => Null;
        /// Address of the management and the metrics port; 0.0.0.0 for all, and then management_key_file is needed for more than health
        /// and metrics.
        management_host: String = Text => Word("127.0.0.1");
        /// File with one key a line; the management routes other than health and metrics then need one of them. none: those of
        /// --api-key-file, if it is set.
        management_key_file: Option<PathBuf> = Or("none", &Path) => Null;
        /// Certificate in PEM, its issuers behind it: the ports speak TLS 1.2 and 1.3. none: plain HTTP.
        tls_cert: Option<PathBuf> = Or("none", &Path) => Null;
        /// Its private key in PEM, not encrypted.
        tls_key: Option<PathBuf> = Or("none", &Path) => Null;
        /// Certificates in PEM of those who may sign a client's, which each client must then show; none: clients need no certificate.
        tls_client_ca: Option<PathBuf> = Or("none", &Path) => Null;
        /// Revocation lists in PEM of clients' certificates.
        tls_client_crl: Option<PathBuf> = Or("none", &Path) => Null;
        /// The same for the management and the metrics port; same, all four: those of the inference port.
        management_tls_cert: Option<PathBuf> = Or("same", &Path) => Null;
        /// Its private key.
        management_tls_key: Option<PathBuf> = Or("same", &Path) => Null;
        /// Who may sign a client's certificate there.
        management_tls_client_ca: Option<PathBuf> = Or("same", &Path) => Null;
        /// Revocation lists there.
        management_tls_client_crl: Option<PathBuf> = Or("same", &Path) => Null;
        /// Serve /metrics.
        enable_metrics: bool = Switch => On(true);
        /// File with one API key a line, maybe followed by its tenant's name (or *: as the gateway's fairness header says); requests
        /// must then carry one of the keys. none: no keys.
        api_key_file: Option<PathBuf> = Or("none", &Path) => Null;
        /// Whose form of TGI's dialect is spoken where they differ: 0.9.4, 3 (defaults, /info and further fields of TGI 2 and 3), or mindie
        /// (its fields, errors and /info).
        tgi_version: TgiVersion = Choice(&["0.9.4", "3", "mindie"]) => Word("0.9.4");
        /// Refuse request fields that no dialect knows; off: the header x-ropeteam-ignored-fields of the answer names them.
        strict: bool = Switch => On(false);
        /// Take the chat template that a request brings (chat_template): a program of the client's.
        trust_request_chat_template: bool = Switch => On(false);
        /// Most requests that wait for a place; more are refused at once with 429.
        max_queue: usize = Int(1, 1_000_000) => Number(256);
        /// JSON file that says how tenants share the devices: classes with weights and bounds, and who is in which. none: all alike.
        tenants_file: Option<PathBuf> = Or("none", &Path) => Null;
        /// Longest wait in the queue, in ms; none: as long as the request may take.
        queue_timeout_ms: Option<u64> = Or("none", &Int(1, DAY)) => Number(60_000);
        /// Longest time of a request from arrival to end, in ms.
        timeout_ms: u64 = Int(1, DAY) => Number(600_000);
        /// A device whose step takes longer is taken for stuck and restarted, in ms.
        step_timeout_ms: u64 = Int(1, DAY) => Number(120_000);
        /// A device that fails is started again at once; this is the pause after the next failure, in ms, which doubles with each, up to 30 s.
        restart_delay_ms: u64 = Int(0, DAY) => Number(100);
        /// A device that fails more often than this within --restart-window-ms is given up.
        restart_budget: u32 = Int(0, 1_000_000) => Number(5);
        /// Failures older than this are forgiven, in ms.
        restart_window_ms: u64 = Int(1, DAY) => Number(600_000);
        /// A device that was given up is tried again after this, in ms; meanwhile requests wait for it if there is no other. none: only when an
        /// operator asks for it, and requests are refused.
        restart_trial_ms: Option<u64> = Or("none", &Int(1, DAY)) => Number(60_000);
        /// Most open connections on the port of the inference routes.
        max_connections: usize = Int(1, 1 << 20) => Number(16_384);
        /// Largest request body, in bytes.
        max_body_bytes: usize = Int(1, MANY) => Number(4_194_304);
        /// Longest time for a request's head to arrive, in ms.
        header_timeout_ms: u64 = Int(1, DAY) => Number(10_000);
        /// Longest time for a request's body to arrive, in ms.
        body_timeout_ms: u64 = Int(1, DAY) => Number(30_000);
        /// How long a client may leave its stream unread, in ms.
        write_timeout_ms: u64 = Int(1, DAY) => Number(30_000);
        /// How long running requests may go on after SIGTERM, in ms.
        drain_timeout_ms: u64 = Int(0, DAY) => Number(30_000);
        /// A silent stream gets a comment this often, in ms.
        sse_keepalive_ms: u64 = Int(10, DAY) => Number(1_500);
        /// Least important log lines to show.
        log_level: LogLevel = Choice(&["error", "warn", "info", "debug", "trace"]) => Word("info");
        /// Form of the log; auto: coloured text on a terminal, JSON elsewhere.
        log_format: LogFormat = Choice(&["auto", "text", "json"]) => Word("auto");
        /// Request log, one JSON line per request: off, on (times and counts), or full (with prompt and result).
        log_requests: LogRequests = Choice(&["off", "on", "full"]) => Word("on");
        /// File that the request log is appended to; stdout: the standard output.
        request_log_file: Option<PathBuf> = Or("stdout", &Path) => Null;
        /// Folder in which each request is recorded, with its parameters and seed and the sum of the weights, and what was last on a
        /// device that died. none: nothing is.
        record_dir: Option<PathBuf> = Or("none", &Path) => Null;
        /// Keep prompts and answers in those records, so that ropeteam replay can repeat them; off: only their sums.
        record_content: bool = Switch => On(false);
    }

    /// Hooks for tests; nobody else needs them.
    debug_config: DebugConfig {
        /// Pause after each step, in ms.
        debug_step_delay_ms: u64 = Int(0, 60_000) => Number(0);
        /// Let the device fail in its first life, at this step counted from 1; none: never.
        debug_fault_at_step: Option<u64> = Or("none", &Int(1, MANY)) => Null;
        /// Let every device fail in each step that begins a prompt with this id; none: never.
        debug_poison: Option<u32> = Or("none", &Int(0, 1 << 24)) => Null;
        /// How it fails there: with an error, a panic, a step without end, or a crash of its process.
        debug_fault: DebugFault = Choice(&["error", "panic", "hang", "crash"]) => Word("error");
    }
}

/// Options that other servers or articles speak of and that this one does not offer yet: `(key, what to say)`.
/// The same words are refused as flags and in the environment.
pub static NOT_OFFERED: &[(&str, &str)] = &[
    ("pd_separation", PD),
    ("prefill_instances", PD),
    ("decode_instances", PD),
];
const PD: &str = "prefill/decode separation is not offered yet; leave it out to serve prefill and decode on one device";

/// Arithmetic of weights and KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// By the checkpoint.
    Auto,
    /// 32-bit floats.
    F32,
    /// bf16 with f32 accumulation.
    Bf16,
    /// f16 with f32 accumulation.
    F16,
}

/// How hidden states become an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolingChoice {
    /// Their mean.
    Mean,
    /// That of the last token.
    Last,
}

/// How a model writes calls of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolParser {
    /// By its chat template.
    Auto,
    /// Not looked for.
    Off,
    /// Objects between tags.
    Hermes,
    /// Objects, maybe behind a tag.
    Llama3,
    /// A list behind a tag.
    Mistral,
    /// A name and a line break before the arguments.
    Glm4,
    /// A name and its arguments between tags.
    Glm45,
    /// An object or a list.
    Json,
}

/// How a model marks its thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningParser {
    /// By its chat template.
    Auto,
    /// Not looked for.
    Off,
    /// It may begin with the tag.
    Qwen3,
    /// The same.
    Glm,
    /// It begins with thoughts.
    Deepseek,
}

/// Weights in few bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantize {
    /// As the file holds them.
    Auto,
    /// Widened to floats.
    None,
    /// A byte each, a factor per output.
    Int8,
    /// Half a byte each, scale and minimum per 32 inputs.
    Int4,
}

/// Numbers of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvDtype {
    /// By the arithmetic.
    Auto,
    /// bf16.
    Bf16,
    /// A byte each.
    Int8,
}

/// Whose form of TGI's dialect is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub enum TgiVersion {
    /// That of 0.9.4.
    #[serde(rename = "0.9.4")]
    Early,
    /// That of 2 and 3.
    #[serde(rename = "3")]
    Later,
    /// MindIE's.
    #[serde(rename = "mindie")]
    MindIe,
}

/// Guessing ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speculate {
    /// None.
    Off,
    /// By n-grams of the sequence's own text.
    Ngram,
}

/// What a crash of a device ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// The server.
    Thread,
    /// The device's own process.
    Process,
}

/// How a device fails that is made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DebugFault {
    Error,
    Panic,
    Hang,
    Crash,
}

/// Time that the simulated device takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SimulatedTime {
    /// That of a small model on two cores.
    Model,
    /// None.
    None,
}

/// Least important log lines to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Coloured text on a terminal, JSON elsewhere.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// What the request log tells of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogRequests {
    /// Nothing.
    Off,
    /// Times, token counts, outcome.
    On,
    /// Prompt and result as well.
    Full,
}

/// The option with this key.
pub fn option(key: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_option() {
        for spec in OPTIONS {
            assert_eq!(
                spec.kind.check(&spec.default.value()),
                Ok(()),
                "{}",
                spec.key
            );
        }
    }

    #[test]
    fn keys_are_unique_over_all_sections() {
        let mut keys: Vec<_> = OPTIONS.iter().map(|spec| spec.key).collect();
        keys.sort_unstable();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    }
}
