//! Translations of MindIE's configurations.

use super::*;
use crate::config::strict_json;

/// MindIE's own example, as its server comes with it but without TLS.
const EXAMPLE: &[u8] = include_bytes!("example.json");

fn translated(text: &[u8]) -> Result<Translated, String> {
    let top = strict_json::object(text)?;
    assert!(is_known_by(&top));
    translate(Path::new("c.json"), top).map_err(|error| error.to_string())
}

fn became<'a>(translated: &'a Translated, field: &str) -> &'a str {
    let note = translated.notes.iter().find(|note| note.field == field);
    note.map_or("", |note| note.became.as_str())
}

#[test]
fn the_example_is_understood_field_by_field() {
    let whole = translated(EXAMPLE).expect("the example");
    for (field, expected) in [
        ("ServerConfig.ipAddress", "host 127.0.0.1"),
        (
            "ServerConfig.managementIpAddress",
            "management_host 127.0.0.2",
        ),
        ("ServerConfig.port", "port 1025"),
        ("ServerConfig.managementPort", "management_port 1026"),
        ("ServerConfig.metricsPort", "metrics_port 1027"),
        ("ServerConfig.maxLinkNum", "max_queue 2000"),
        ("ServerConfig.tokenTimeout", "step_timeout_ms 600000"),
        ("ServerConfig.e2eTimeout", "timeout_ms 600000"),
        ("ServerConfig.maxRequestLength", "max_body_bytes 41943040"),
        (
            "ServerConfig.interCommPort",
            "no meaning here: prefill and decode are not separated",
        ),
        (
            "BackendConfig.ModelDeployConfig.maxSeqLen",
            "max_model_len 2560",
        ),
        (
            "BackendConfig.ModelDeployConfig.maxInputTokenLen",
            "max_input_tokens 2048",
        ),
        (
            "BackendConfig.ModelDeployConfig.ModelConfig[0].modelName",
            "served_name llama_65b",
        ),
        (
            "BackendConfig.ModelDeployConfig.ModelConfig[0].modelWeightPath",
            "model /data/atb_testdata/weights/llama1-65b-safetensors",
        ),
        (
            "BackendConfig.ScheduleConfig.templateType",
            "prefill_chunk_tokens 8192 (a prompt is computed in one step)",
        ),
        (
            "BackendConfig.ScheduleConfig.cacheBlockSize",
            "kv_block_size 128",
        ),
        (
            "BackendConfig.ScheduleConfig.maxPrefillBatchSize",
            "max_prefill_batch_size 50",
        ),
        (
            "BackendConfig.ScheduleConfig.maxBatchSize",
            "max_decode_batch_size 200",
        ),
        (
            "BackendConfig.ScheduleConfig.maxIterTimes",
            "max_output_tokens 512",
        ),
        (
            "BackendConfig.ScheduleConfig.supportSelectBatch",
            "support_select_batch 0",
        ),
    ] {
        assert_eq!(became(&whole, field), expected, "{field}");
    }
    let set = |key: &str| {
        whole
            .settings
            .iter()
            .filter(|one| one.spec.key == key)
            .count()
    };
    assert_eq!(set("max_queue"), 1);
    assert!(whole.notes.iter().all(|note| !note.became.is_empty()));
}

#[test]
fn what_is_wrong_is_named_with_its_path() {
    let check = |text: &str, expected: &str| {
        let error = translated(text.as_bytes()).err().expect(text);
        assert_eq!(error, format!("c.json: {expected}"));
    };
    check(
        r#"{"ServerConfig": {"port": 80}}"#,
        "ServerConfig.port: 80 is not a whole number from 1024 to 65535",
    );
    check(
        r#"{"ServerConfig": {"prot": 1025}}"#,
        "ServerConfig.prot: unknown key; did you mean port?",
    );
    check(
        r#"{"ServerConfig": {"ipAddress": "0.0.0.0"}}"#,
        "ServerConfig.ipAddress: 0.0.0.0 needs allowAllZeroIpListening: true",
    );
    check(
        r#"{"ServerConfig": {"inferMode": "dmi"}}"#,
        "ServerConfig.inferMode: dmi is not offered: prefill and decode are not separated",
    );
    check(
        r#"{"BackendConfig": {"ScheduleConfig": {"cacheBlockSize": 100}}}"#,
        "BackendConfig.ScheduleConfig.cacheBlockSize: 100 is not a multiple of 16",
    );
    check(
        r#"{"BackendConfig": {"ScheduleConfig": {"maxPrefillTokens": 100},
            "ModelDeployConfig": {"maxInputTokenLen": 200}}}"#,
        "BackendConfig.ScheduleConfig.maxPrefillTokens: 100 is less than maxInputTokenLen, which is 200",
    );
    check(
        r#"{"ModelDeployConfig": {"ModelConfig": [{}, {}]}}"#,
        "ModelDeployConfig.ModelConfig: 2 models; a server here serves one",
    );
    check(
        r#"{"ModelDeployConfig": {"ModelConfig": [{"plugin_params": "{\"plugin_type\":\"mtp\"}"}]}}"#,
        "ModelDeployConfig.ModelConfig[0].plugin_params: {\"plugin_type\":\"mtp\"} is not offered; plugin_type may be prefix_cache, la or memory_decoding",
    );
    check(r#"{"ServerConfig": 7}"#, "ServerConfig: must be an object");
    check(
        r#"{"LogConfig": {"logLevel": "loud"}}"#,
        "LogConfig.logLevel: loud is not one of Verbose, Debug, Info, Warning, Error, Critical",
    );
}

#[test]
fn rules_that_are_more_than_a_name_hold() {
    let check = |text: &str, field: &str, expected: &str| {
        let whole = translated(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(became(&whole, field), expected, "{text}");
    };
    check(
        r#"{"ServerConfig": {"ipAddress": "0.0.0.0", "allowAllZeroIpListening": true}}"#,
        "ServerConfig.ipAddress",
        "host 0.0.0.0",
    );
    let model = |field: &str| {
        (
            format!(r#"{{"ModelDeployConfig": {{"ModelConfig": [{{{field}}}]}}}}"#),
            "ModelDeployConfig.ModelConfig[0].",
        )
    };
    for (given, key, expected) in [
        (r#""npuMemSize": 8"#, "npuMemSize", "kv_memory 8GiB"),
        (
            r#""modelInstanceType": "StandardMock""#,
            "modelInstanceType",
            "device simulated",
        ),
        (
            r#""plugin_params": "{\"plugin_type\":\"prefix_cache\"}""#,
            "plugin_params",
            "prefix_cache on",
        ),
    ] {
        let (text, section) = model(given);
        check(&text, &format!("{section}{key}"), expected);
    }
    check(
        r#"{"ScheduleConfig": {"templateType": "Mix", "prefillChunkSize": 256}}"#,
        "ScheduleConfig.prefillChunkSize",
        "prefill_chunk_tokens 256",
    );
    check(
        r#"{"ScheduleConfig": {"supportSelectBatch": true}}"#,
        "ScheduleConfig.supportSelectBatch",
        "support_select_batch 1",
    );
}

#[test]
fn certificates_are_used_when_the_ports_speak_tls() {
    let text = |https: bool| {
        format!(
            r#"{{"ServerConfig": {{"httpsEnabled": {https}, "tlsCaPath": "ca/", "tlsCaFile": ["c.pem"],
                "tlsCert": "s.pem", "tlsPk": "s.key", "managementTlsCaFile": ["m.pem"], "tlsCrlFiles": []}}}}"#
        )
    };
    let on = translated(text(true).as_bytes()).expect("a configuration");
    for (field, expected) in [
        ("tlsCaFile", "tls_client_ca ca/c.pem"),
        ("tlsCert", "tls_cert s.pem"),
        ("tlsPk", "tls_key s.key"),
        ("managementTlsCaFile", "management_tls_client_ca ca/m.pem"),
        ("tlsCrlFiles", "no meaning here: nothing is asked for"),
    ] {
        assert_eq!(became(&on, &format!("ServerConfig.{field}")), expected);
    }
    let off = translated(text(false).as_bytes()).expect("a configuration");
    let keys: Vec<&str> = off.settings.iter().map(|one| one.spec.key).collect();
    assert_eq!(keys, ["tgi_version"]);
    let bare = br#"{"ServerConfig": {"httpsEnabled": true, "tlsCert": "s.pem"}}"#;
    let error = translated(bare).err().expect("no key");
    assert!(error.contains("httpsEnabled: true asks for TLS"), "{error}");
    let several = text(true).replace(r#"["c.pem"]"#, r#"["c.pem", "d.pem"]"#);
    let error = translated(several.as_bytes()).err().expect("two files");
    assert!(error.contains("tlsCaFile: 2 files"), "{error}");
}

#[test]
fn every_field_of_the_table_is_named_once_and_names_options() {
    let mut names: Vec<&str> = fields::all().map(|field| field.name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    for field in fields::all() {
        if let Becomes::Option(key) | Becomes::Times(key, _) = field.becomes {
            assert!(option(key).is_some(), "{}: {key}", field.name);
        }
    }
}
