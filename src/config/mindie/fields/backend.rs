//! `BackendConfig`, `ModelDeployConfig`, `ModelConfig` and `ScheduleConfig`.

use super::Becomes::*;
use super::{Field, field};
use crate::config::mindie::Became;
use crate::config::mindie::shape::Shape::{self, *};
use crate::config::mindie::whole::{self, Whole};
use serde_json::Value;

const PORT: Shape = Int(1024, 65535);
const ANY_U32: Shape = Int(0, u32::MAX as i64);
const NO_PD: &str = "prefill and decode are not separated";
const NO_NODES: &str = "there is one machine";
const NO_SWAP: &str = "nothing is swapped out, a sequence that loses its blocks is computed again";
const NO_ESTIMATE: &str = "the choice between prefill and decode needs no estimate";
const NO_DELAY: &str = "a step begins as soon as there is work";
const ONE_ENGINE: &str = "there is one engine, --device says what computes";
const CHUNKS: &str = "chunks are shared out by the step's budget";
const PARALLEL: &str = "the threads of the device share the work";

/// All of them.
pub static FIELDS: &[Field] = &[
    field("BackendConfig.backendName", Text, Nothing(ONE_ENGINE)),
    field(
        "BackendConfig.modelInstanceNumber",
        Int(1, 1),
        Nothing(ONE_ENGINE),
    ),
    field("BackendConfig.npuDeviceIds", Devices, Nothing(ONE_ENGINE)),
    field(
        "BackendConfig.tokenizerProcessNumber",
        Int(1, 32),
        Nothing("texts are tokenised on threads, one per core"),
    ),
    field(
        "BackendConfig.multiNodesInferEnabled",
        Bool,
        Only("false", NO_NODES),
    ),
    field("BackendConfig.multiNodesInferPort", PORT, Nothing(NO_NODES)),
    field("BackendConfig.interNodeTLSEnabled", Bool, Nothing(NO_NODES)),
    field("BackendConfig.interNodeTlsCaPath", Text, Nothing(NO_NODES)),
    field(
        "BackendConfig.interNodeTlsCaFiles",
        Texts,
        Nothing(NO_NODES),
    ),
    field("BackendConfig.interNodeTlsCert", Text, Nothing(NO_NODES)),
    field("BackendConfig.interNodeTlsPk", Text, Nothing(NO_NODES)),
    field("BackendConfig.interNodeTlsCrlPath", Text, Nothing(NO_NODES)),
    field(
        "BackendConfig.interNodeTlsCrlFiles",
        Texts,
        Nothing(NO_NODES),
    ),
    field(
        "BackendConfig.kvPoolConfig",
        Any,
        Nothing("the KV cache is each device's own"),
    ),
    field(
        "ModelDeployConfig.maxSeqLen",
        Int(1, 4_194_304),
        Option("max_model_len"),
    ),
    field(
        "ModelDeployConfig.maxInputTokenLen",
        Int(1, 4_194_304),
        Option("max_input_tokens"),
    ),
    field("ModelDeployConfig.truncation", Truth, By(truncation)),
    field(
        "ModelDeployConfig.maxLoras",
        ANY_U32,
        Nothing("adapters are not supported"),
    ),
    field(
        "ModelDeployConfig.maxLoraRank",
        ANY_U32,
        Nothing("adapters are not supported"),
    ),
    field(
        "ModelConfig.modelInstanceType",
        Choice(&["Standard", "StandardMock"]),
        By(whole::instance_type),
    ),
    field("ModelConfig.modelName", Text, Option("served_name")),
    field("ModelConfig.modelWeightPath", Text, Option("model")),
    field(
        "ModelConfig.worldSize",
        Int(1, 1_048_576),
        Nothing(PARALLEL),
    ),
    field("ModelConfig.cpuMemSize", ANY_U32, Nothing(NO_SWAP)),
    field(
        "ModelConfig.npuMemSize",
        Int(-1, 4096),
        By(whole::npu_memory),
    ),
    field(
        "ModelConfig.backendType",
        Choice(&["atb", "torch", "ms"]),
        Nothing(ONE_ENGINE),
    ),
    field(
        "ModelConfig.trustRemoteCode",
        Bool,
        Nothing("code of a model is never run"),
    ),
    field("ModelConfig.plugin_params", Text, By(whole::plugins)),
    field("ModelConfig.pluginParams", Text, By(whole::plugins)),
    field(
        "ModelConfig.async_scheduler_wait_time",
        ANY_U32,
        Nothing(NO_DELAY),
    ),
    field("ModelConfig.kv_trans_timeout", ANY_U32, Nothing(NO_PD)),
    field("ModelConfig.kv_link_timeout", ANY_U32, Nothing(NO_PD)),
    field(
        "ModelConfig.models",
        Any,
        Nothing("the model says itself what it is"),
    ),
    field("ModelConfig.dp", Any, Nothing(PARALLEL)),
    field("ModelConfig.tp", Any, Nothing(PARALLEL)),
    field("ModelConfig.sp", Any, Nothing(PARALLEL)),
    field("ModelConfig.cp", Any, Nothing(PARALLEL)),
    field("ModelConfig.moe_tp", Any, Nothing(PARALLEL)),
    field("ModelConfig.moe_ep", Any, Nothing(PARALLEL)),
    field(
        "ScheduleConfig.templateType",
        Choice(&["Standard", "Mix"]),
        By(whole::template),
    ),
    field(
        "ScheduleConfig.templateName",
        Text,
        Nothing("templateType says it"),
    ),
    field(
        "ScheduleConfig.cacheBlockSize",
        Int(1, 128),
        By(whole::block_size),
    ),
    field(
        "ScheduleConfig.maxPrefillBatchSize",
        Int(1, 4096),
        Option("max_prefill_batch_size"),
    ),
    field(
        "ScheduleConfig.maxPrefillTokens",
        Int(1, 1_048_576),
        Option("max_prefill_tokens"),
    ),
    field(
        "ScheduleConfig.prefillTimeMsPerReq",
        Int(0, 1000),
        Nothing(NO_ESTIMATE),
    ),
    field(
        "ScheduleConfig.decodeTimeMsPerReq",
        Int(0, 1000),
        Nothing(NO_ESTIMATE),
    ),
    field(
        "ScheduleConfig.prefillPolicyType",
        ANY_U32,
        Only("0", "it must be 0, first come first served"),
    ),
    field(
        "ScheduleConfig.decodePolicyType",
        ANY_U32,
        Only("0", "it must be 0, first come first served"),
    ),
    field(
        "ScheduleConfig.policyType",
        ANY_U32,
        Only("0", "it must be 0, first come first served"),
    ),
    field(
        "ScheduleConfig.maxBatchSize",
        Int(1, 4096),
        Option("max_decode_batch_size"),
    ),
    field(
        "ScheduleConfig.maxIterTimes",
        Int(1, 4_194_304),
        Option("max_output_tokens"),
    ),
    field("ScheduleConfig.maxPreemptCount", ANY_U32, Nothing(NO_SWAP)),
    field(
        "ScheduleConfig.supportSelectBatch",
        Truth,
        By(whole::select_batch),
    ),
    field(
        "ScheduleConfig.maxQueueDelayMicroseconds",
        Int(500, 1_000_000),
        Nothing(NO_DELAY),
    ),
    field(
        "ScheduleConfig.maxFirstTokenWaitTime",
        Int(0, 3_600_000),
        Nothing("the oldest request is always the next"),
    ),
    field(
        "ScheduleConfig.maxN",
        Int(1, 8192),
        Nothing("each dialect bounds the choices of a request"),
    ),
    field(
        "ScheduleConfig.prefillChunkSize",
        Int(1, 1_048_576),
        By(whole::chunk),
    ),
    field(
        "ScheduleConfig.splitChunkTokens",
        Int(1, 1_048_576),
        By(whole::chunk),
    ),
    field(
        "ScheduleConfig.enableSplit",
        Bool,
        Nothing("templateType says it"),
    ),
    field(
        "ScheduleConfig.enablChunkedPrefill",
        Bool,
        Nothing("templateType says it"),
    ),
    field("ScheduleConfig.splitType", Any, Nothing(CHUNKS)),
    field("ScheduleConfig.splitStartType", Any, Nothing(CHUNKS)),
    field(
        "ScheduleConfig.splitStartBatchSize",
        ANY_U32,
        Nothing(CHUNKS),
    ),
    field(
        "ScheduleConfig.maxNumPartialPrefills",
        ANY_U32,
        Nothing(CHUNKS),
    ),
    field(
        "ScheduleConfig.longPrefillTokenThreshold",
        ANY_U32,
        Nothing(CHUNKS),
    ),
    field(
        "ScheduleConfig.maxLongPartialPrefills",
        ANY_U32,
        Nothing(CHUNKS),
    ),
    field(
        "ScheduleConfig.enablePrefixCache",
        Bool,
        Option("prefix_cache"),
    ),
    field(
        "ScheduleConfig.stageSelectPolicy",
        ANY_U32,
        Only("0", "supportSelectBatch says who goes first"),
    ),
    field(
        "ScheduleConfig.dynamicBatchSizeEnable",
        Bool,
        Only("false", "batches are bounded by fixed numbers"),
    ),
    field(
        "ScheduleConfig.prefillExpectedTime",
        ANY_U32,
        Nothing(NO_ESTIMATE),
    ),
    field(
        "ScheduleConfig.decodeExpectedTime",
        ANY_U32,
        Nothing(NO_ESTIMATE),
    ),
    field(
        "ScheduleConfig.bufferResponseEnabled",
        Bool,
        Only("false", "tokens are sent as they come"),
    ),
    field(
        "ScheduleConfig.distributedEnable",
        Bool,
        Only("false", NO_NODES),
    ),
    field(
        "ScheduleConfig.layerwiseDisaggregated",
        Any,
        Nothing(NO_NODES),
    ),
];

fn truncation(value: &Value, _: &Whole) -> Result<Became, String> {
    match value.as_bool().unwrap_or(value.as_i64() == Some(1)) {
        true => Err("truncating by itself is not offered: a request may ask for it".to_owned()),
        false => Ok(Became::nothing("too long prompts are refused")),
    }
}
