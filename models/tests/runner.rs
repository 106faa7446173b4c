//! What a runner answers beside plain logits, what it refuses, and the facts that a server takes from a model.

mod tiny_models;

use ropeteam_device::{ColumnMask, CpuDevice, CpuOptions, Dtype, KvPrecision, Precision};
use ropeteam_engine::executor::{FaultKind, StepExecutor};
use ropeteam_engine::ids::{BlockId, SeqId, TokenId};
use ropeteam_engine::plan::{Chunk, ChunkResult, StepOutput, StepPlan, Want};
use ropeteam_models::{Checkpoint, LoadError, ModelInfo, ModelRunner, RunnerOptions, families};
use tiny_models::{Goldens, argmax, folder};

fn options(mask: ColumnMask) -> RunnerOptions {
    RunnerOptions {
        kv_blocks: 8,
        block_size: 16,
        max_model_len: 64,
        max_step_tokens: 64,
        max_logits_rows: 4,
        mask,
    }
}

fn load(options: RunnerOptions) -> Result<ModelRunner, LoadError> {
    let checkpoint = Checkpoint::open(&folder("llama"))?;
    let device = CpuDevice::new(CpuOptions {
        precision: Precision::F32,
        kv: KvPrecision::ByWeights,
        threads: 1,
    });
    ModelRunner::load(&checkpoint, Box::new(device), options)
}

fn prompt() -> Vec<TokenId> {
    Goldens::read(&folder("llama")).prompts[1]
        .ids
        .iter()
        .map(|&id| TokenId(id))
        .collect()
}

fn chunk(block: u32, want: Want) -> Chunk {
    Chunk {
        seq: SeqId(u64::from(block)),
        tokens: prompt(),
        start: 0,
        blocks: vec![BlockId(block)],
        want,
    }
}

#[test]
fn columns_without_a_token_are_never_the_best() {
    let everything = ColumnMask {
        limit: 512,
        holes: vec![],
    };
    let mut output = StepOutput::default();
    load(options(everything))
        .unwrap()
        .step(
            &StepPlan {
                chunks: vec![chunk(0, Want::LastLogits)],
            },
            &mut output,
        )
        .unwrap();
    let row = output.row(0).to_vec();
    let best = argmax(&row);
    // The best column is a hole, and the tokenizer ends before the last columns.
    let mask = ColumnMask {
        limit: 500,
        holes: vec![best, 505],
    };
    let plan = StepPlan {
        chunks: vec![
            chunk(0, Want::LastLogits),
            chunk(1, Want::Nothing),
            chunk(2, Want::Argmax),
        ],
    };
    load(options(mask))
        .unwrap()
        .step(&plan, &mut output)
        .unwrap();
    let masked = output.row(0);
    let hidden = |column: usize| column == best as usize || column >= 500;
    for (column, (&found, &original)) in masked.iter().zip(&row).enumerate() {
        assert_eq!(
            found,
            if hidden(column) {
                f32::NEG_INFINITY
            } else {
                original
            }
        );
    }
    assert_eq!(
        output.results[0],
        ChunkResult::Logits { first: 0, count: 1 }
    );
    assert_eq!(output.results[1], ChunkResult::Nothing);
    assert_eq!(
        output.results[2],
        ChunkResult::Best(TokenId(argmax(masked)))
    );
}

#[test]
fn limits_that_contradict_the_model_are_refused() {
    let mask = ColumnMask {
        limit: 512,
        holes: vec![],
    };
    let refusal = |options: RunnerOptions| load(options).err().unwrap().to_string();
    let message = refusal(RunnerOptions {
        max_model_len: 513,
        ..options(mask.clone())
    });
    assert!(
        message.contains("513") && message.contains("512"),
        "{message}"
    );
    assert!(
        refusal(RunnerOptions {
            kv_blocks: 0,
            ..options(mask.clone())
        })
        .contains("kv_blocks")
    );
    let message = refusal(RunnerOptions {
        kv_blocks: u32::MAX,
        ..options(mask)
    });
    assert!(message.contains("kv_blocks"), "{message}");
}

#[test]
fn an_id_outside_the_table_is_a_fault_and_no_panic() {
    let mut runner = load(options(ColumnMask {
        limit: 600,
        holes: vec![550],
    }))
    .unwrap();
    let mut outside = chunk(0, Want::Argmax);
    outside.tokens[0] = TokenId(512);
    let fault = runner
        .step(
            &StepPlan {
                chunks: vec![outside],
            },
            &mut StepOutput::default(),
        )
        .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Operator);
    assert!(fault.detail.contains("512"), "{fault}");
}

#[test]
fn a_models_facts_come_from_both_of_its_configurations() {
    let gather = |folder: &std::path::Path| {
        let checkpoint = Checkpoint::open(folder).unwrap();
        let spec = families::spec(checkpoint.config()).unwrap();
        ModelInfo::gather(&checkpoint, &spec).unwrap()
    };
    let info = gather(&folder("glm4"));
    assert_eq!(info.architecture, "Glm4ForCausalLM");
    assert_eq!(info.eos_ids, [493, 499, 501].map(TokenId));
    assert_eq!(
        (info.bos_id, info.vocab_size, info.max_position_embeddings),
        (None, 512, 512)
    );
    assert_eq!(
        (info.dtype, info.default_precision()),
        (Dtype::F32, Precision::F32)
    );
    assert_eq!(
        gather(&folder("llama/bf16")).default_precision(),
        Precision::Stored
    );
    // The number of weights that the reference counted.
    assert_eq!(gather(&folder("llama")).parameters, 191_936);

    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(folder("llama").join(name), dir.path().join(name)).unwrap();
    }
    let generation = r#"{"eos_token_id": [500, 498, 7], "do_sample": true, "temperature": 0.7, "top_p": 0.8,
        "top_k": 20, "repetition_penalty": 1.05}"#;
    std::fs::write(dir.path().join("generation_config.json"), generation).unwrap();
    let info = gather(dir.path());
    assert_eq!(info.eos_ids, [500, 498, 7].map(TokenId));
    assert_eq!(
        (info.sampling.do_sample, info.sampling.top_k),
        (Some(true), Some(20))
    );
    assert_eq!(
        (info.sampling.temperature, info.sampling.repetition_penalty),
        (Some(0.7), Some(1.05))
    );
}
