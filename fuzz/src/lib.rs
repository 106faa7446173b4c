//! What is fuzzed: each target takes any bytes and must neither panic, nor hang, nor take memory without bound. Driven by cargo-fuzz
//! (`fuzz_targets/`) and, without a nightly compiler, by the server's test `fuzz_corpus` (`tests/fuzz_corpus.rs`).

mod bodies;

use ropeteam_engine::text::TextCodec;
use ropeteam_models::checkpoint::Checkpoint;
use ropeteam_models::grammar::{GrammarSpec, Grammars, Whitespace};
use ropeteam_models::text::{ChatTemplate, Codec, GgufText, RenderInput, SpecialTokens};
use ropeteam_models::{ModelInfo, families};
use ropeteam_sim::codec::{END_OF_TEXT, SimCodec};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is that of its corpus as well.
pub const TARGETS: &[(&str, Target)] = &[
    ("safetensors", safetensors),
    ("gguf", gguf),
    ("model_config", model_config),
    ("server_config", server_config),
    ("tokenizer", tokenizer),
    ("template", template),
    ("schema", schema),
    ("grammar", grammar),
    ("frames", ropeteam_actors::read_frames),
    ("bodies", bodies::bodies),
];

/// Runs one target, for its own program.
pub fn run(name: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.expect("a target of that name").1(bytes);
}

/// The shape of a tiny Llama.
const CONFIG: &[u8] = br#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8,"intermediate_size":16,
"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":16,"max_position_embeddings":64,
"rms_norm_eps":1e-5,"torch_dtype":"float32","tie_word_embeddings":true}"#;
/// No tensor.
const EMPTY_WEIGHTS: &[u8] = b"\x08\0\0\0\0\0\0\0{}      ";

fn safetensors(bytes: &[u8]) {
    folder(
        &[("config.json", CONFIG), ("model.safetensors", bytes)],
        open,
    );
}

fn gguf(bytes: &[u8]) {
    folder(&[("model.gguf", bytes)], |folder| {
        open(&folder.join("model.gguf"));
    });
}

fn model_config(bytes: &[u8]) {
    let files: [(&str, &[u8]); 3] = [
        ("config.json", bytes),
        ("generation_config.json", bytes),
        ("model.safetensors", EMPTY_WEIGHTS),
    ];
    folder(&files, open);
}

/// All that is done with a model before its weights are read, and a look at each tensor.
fn open(path: &Path) {
    let Ok(checkpoint) = Checkpoint::open(path) else {
        return;
    };
    for name in checkpoint.tensor_names().take(64) {
        let _ = checkpoint.tensor(&name, &[2, 2]);
    }
    let _ = (checkpoint.elements(), checkpoint.weights_dtype());
    if let Some(metadata) = checkpoint.gguf()
        && let Ok(text) = GgufText::from_metadata(metadata, "fuzz")
    {
        let _ = text.chat_template();
    }
    if let Ok(spec) = families::spec(checkpoint.config()) {
        let _ = ModelInfo::gather(&checkpoint, &spec);
    }
}

fn server_config(bytes: &[u8]) {
    folder(&[("config.json", bytes)], |folder| {
        let _ = ropeteam::config::check_file(&folder.join("config.json"));
    });
}

fn tokenizer(bytes: &[u8]) {
    let Ok(codec) = Codec::from_json(bytes, "fuzz") else {
        return;
    };
    if let Ok(ids) = codec.encode("A few words, 12 numbers, \u{1f9d7} and\n<|end|>.", true) {
        let _ = codec.decode(&ids, false);
    }
}

fn template(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else {
        return;
    };
    let special = SpecialTokens::from_pairs([("bos_token", "<s>"), ("eos_token", "</s>")]);
    let Ok(template) = ChatTemplate::from_source(source, "fuzz", &special) else {
        return;
    };
    let messages = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Who holds the rope?"}),
    ];
    let _ = template.render(&RenderInput::new(&messages));
}

fn schema(bytes: &[u8]) {
    if let Ok(schema) = std::str::from_utf8(bytes) {
        compile(&GrammarSpec::Json {
            schema: schema.to_owned(),
            whitespace: Whitespace::default(),
        });
    }
}

fn grammar(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        compile(&GrammarSpec::Grammar(text.to_owned()));
        compile(&GrammarSpec::Regex(text.to_owned()));
    }
}

fn compile(spec: &GrammarSpec) {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    let grammars = GRAMMARS.get_or_init(|| {
        let codec: Arc<dyn TextCodec> = Arc::new(SimCodec::default());
        Grammars::new(codec, vec![END_OF_TEXT])
    });
    if let Ok(constraint) = grammars.compile(spec) {
        let _ = constraint.begin(&[]).mask();
    }
}

/// Puts the files into a folder for as long as `look` lasts.
fn folder(files: &[(&str, &[u8])], look: impl Fn(&Path)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).expect("a temporary file");
    }
    look(folder.path());
}
