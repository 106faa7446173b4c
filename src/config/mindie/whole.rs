//! Rules over several fields of MindIE's configuration, and those for single ones that are more than a new name.

use super::{Became, Found, shown};
use serde_json::Value;

/// The fields that others depend on; absent ones have MindIE's defaults.
pub struct Whole {
    /// Any address may be listened on.
    any_address: bool,
    /// The ports speak TLS, as they do there unless told otherwise.
    pub https: bool,
    /// There is a certificate and a key to do so with.
    certified: bool,
    /// Folders of certificates and of revocation lists.
    pub ca_path: String,
    pub crl_path: String,
    pub management_crl_path: String,
    /// `Mix`: prompts are cut into chunks.
    mixed: bool,
    max_prefill_tokens: Option<(String, i64)>,
    max_input_tokens: Option<i64>,
}

impl Whole {
    /// Looks for them.
    pub(super) fn of(found: &[Found]) -> Self {
        let field = |name: &str| found.iter().find(|one| one.field.name == name);
        let number = |one: &Found| one.value.as_i64();
        let says = |name: &str, value: Value| field(name).is_some_and(|one| one.value == value);
        let path = |name: &str| field(name).map_or_else(String::new, |one| shown(&one.value));
        Whole {
            any_address: says("ServerConfig.allowAllZeroIpListening", true.into()),
            https: says("ServerConfig.httpsEnabled", true.into()),
            certified: ["ServerConfig.tlsCert", "ServerConfig.tlsPk"]
                .iter()
                .all(|name| field(name).is_some_and(|one| !text(&one.value).is_empty())),
            ca_path: path("ServerConfig.tlsCaPath"),
            crl_path: path("ServerConfig.tlsCrlPath"),
            management_crl_path: path("ServerConfig.managementTlsCrlPath"),
            mixed: says("ScheduleConfig.templateType", "Mix".into()),
            max_prefill_tokens: field("ScheduleConfig.maxPrefillTokens")
                .and_then(|one| Some((one.path.clone(), number(one)?))),
            max_input_tokens: field("ModelDeployConfig.maxInputTokenLen").and_then(number),
        }
    }

    /// Checks what no field can be checked for alone.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), (String, String)> {
        if self.https && !self.certified {
            let problem = "true asks for TLS, which needs the files tlsCert and tlsPk";
            return Err(("ServerConfig.httpsEnabled".to_owned(), problem.to_owned()));
        }
        match (&self.max_prefill_tokens, self.max_input_tokens) {
            (Some((path, tokens)), Some(input)) if *tokens < input => Err((
                path.clone(),
                format!("{tokens} is less than maxInputTokenLen, which is {input}"),
            )),
            _ => Ok(()),
        }
    }
}

pub(super) type Outcome = Result<Became, String>;

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

pub(super) fn address(value: &Value, whole: &Whole) -> Outcome {
    checked_address("host", value, whole)
}

pub(super) fn management_address(value: &Value, whole: &Whole) -> Outcome {
    checked_address("management_host", value, whole)
}

fn checked_address(key: &'static str, value: &Value, whole: &Whole) -> Outcome {
    let all = matches!(text(value), "0.0.0.0" | "::");
    if all && !whole.any_address {
        return Err(format!(
            "{} needs allowAllZeroIpListening: true",
            text(value)
        ));
    }
    Ok(Became::option(key, value.clone()))
}

/// There twice as many as run may wait before the next is refused.
pub(super) fn max_link(value: &Value, _: &Whole) -> Outcome {
    Ok(Became::option("max_queue", 2 * number(value)))
}

pub(super) fn request_length(value: &Value, _: &Whole) -> Outcome {
    Ok(Became::option("max_body_bytes", number(value) << 20))
}

pub(super) fn npu_memory(value: &Value, _: &Whole) -> Outcome {
    match number(value) {
        -1 | 0 => Ok(Became::nothing("automatic, as kv_memory is by default")),
        gigabytes => Ok(Became::option("kv_memory", format!("{gigabytes}GiB"))),
    }
}

pub(super) fn instance_type(value: &Value, _: &Whole) -> Outcome {
    match text(value) {
        "StandardMock" => Ok(Became::option("device", "simulated")),
        _ => Ok(Became::nothing("the ordinary kind of instance")),
    }
}

/// `plugin_params` is a text of JSON.
pub(super) fn plugins(value: &Value, _: &Whole) -> Outcome {
    let given = text(value).trim();
    if given.is_empty() {
        return Ok(Became::nothing("nothing is asked for"));
    }
    let parsed: Value = serde_json::from_str(given)
        .map_err(|error| format!("{given} is no text of JSON: {error}"))?;
    match parsed.get("plugin_type").and_then(Value::as_str) {
        Some("prefix_cache") => Ok(Became::option("prefix_cache", true)),
        Some("la" | "memory_decoding") => Ok(Became {
            settings: vec![("speculate", "ngram".into())],
            remark: Some("guessing by what the text went like before".into()),
        }),
        _ => Err(format!(
            "{given} is not offered; plugin_type may be prefix_cache, la or memory_decoding"
        )),
    }
}

/// Without chunks a prompt is computed in one step, which `maxPrefillTokens` has room for.
pub(super) fn template(_: &Value, whole: &Whole) -> Outcome {
    match (whole.mixed, &whole.max_prefill_tokens) {
        (false, Some((_, tokens))) => Ok(Became {
            settings: vec![("prefill_chunk_tokens", (*tokens).into())],
            remark: Some("a prompt is computed in one step".into()),
        }),
        _ => Ok(Became::nothing(
            "prompts are cut into chunks, as they are by default",
        )),
    }
}

pub(super) fn chunk(value: &Value, whole: &Whole) -> Outcome {
    match whole.mixed {
        true => Ok(Became::option("prefill_chunk_tokens", value.clone())),
        false => Ok(Became::nothing("only templateType Mix cuts prompts")),
    }
}

pub(super) fn block_size(value: &Value, _: &Whole) -> Outcome {
    match number(value) % 16 {
        0 => Ok(Became::option("kv_block_size", value.clone())),
        _ => Err(format!("{value} is not a multiple of 16")),
    }
}

pub(super) fn select_batch(value: &Value, _: &Whole) -> Outcome {
    let on = value.as_bool().unwrap_or(number(value) == 1);
    Ok(Became::option("support_select_batch", i64::from(on)))
}

pub(super) fn log_level(value: &Value, _: &Whole) -> Outcome {
    match text(value).to_ascii_lowercase().as_str() {
        "" => Ok(Became::nothing("nothing is asked for")),
        "verbose" => Ok(Became::option("log_level", "trace")),
        "debug" => Ok(Became::option("log_level", "debug")),
        "info" => Ok(Became::option("log_level", "info")),
        "warning" | "warn" => Ok(Became::option("log_level", "warn")),
        "error" | "critical" => Ok(Became::option("log_level", "error")),
        _ => Err(format!(
            "{} is not one of Verbose, Debug, Info, Warning, Error, Critical",
            shown(value)
        )),
    }
}
