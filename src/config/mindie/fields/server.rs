//! `ServerConfig`, `LogConfig`, and what stands at the top.

use super::Becomes::*;
use super::{Field, field};
use crate::config::mindie::shape::Shape::{self, *};
use crate::config::mindie::{tls, whole};

const PORT: Shape = Int(1024, 65535);
const ANY_U32: Shape = Int(0, u32::MAX as i64);
const NO_PD: &str = "prefill and decode are not separated";
const NO_NODES: &str = "there is one machine";
const METRICS: &str = "the metrics port has the certificate of the management port";

/// All of them.
pub static FIELDS: &[Field] = &[
    field("Version", Any, Nothing("the version of MindIE's file")),
    field(
        "EnableDynamicAdjustTimeoutConfig",
        Bool,
        Only("false", "timeouts are fixed"),
    ),
    field("ServerConfig.ipAddress", Ip, By(whole::address)),
    field(
        "ServerConfig.managementIpAddress",
        Ip,
        By(whole::management_address),
    ),
    field("ServerConfig.port", PORT, Option("port")),
    field(
        "ServerConfig.managementPort",
        PORT,
        Option("management_port"),
    ),
    field("ServerConfig.metricsPort", PORT, Option("metrics_port")),
    field(
        "ServerConfig.allowAllZeroIpListening",
        Bool,
        Nothing("it only allows or forbids ipAddress 0.0.0.0"),
    ),
    field("ServerConfig.maxLinkNum", Int(1, 4096), By(whole::max_link)),
    field("ServerConfig.httpsEnabled", Bool, By(tls::https)),
    field(
        "ServerConfig.fullTextEnabled",
        Bool,
        Only("false", "each event of a stream holds what is new"),
    ),
    field(
        "ServerConfig.tlsCaPath",
        Text,
        Nothing("tlsCaFile and managementTlsCaFile are in it"),
    ),
    field("ServerConfig.tlsCaFile", Texts, By(tls::ca)),
    field("ServerConfig.tlsCert", Text, By(tls::cert)),
    field("ServerConfig.tlsPk", Text, By(tls::key)),
    field(
        "ServerConfig.tlsCrlPath",
        Text,
        Nothing("tlsCrlFiles are in it"),
    ),
    field("ServerConfig.tlsCrlFiles", Texts, By(tls::crl)),
    field(
        "ServerConfig.managementTlsCaFile",
        Texts,
        By(tls::management_ca),
    ),
    field(
        "ServerConfig.managementTlsCert",
        Text,
        By(tls::management_cert),
    ),
    field(
        "ServerConfig.managementTlsPk",
        Text,
        By(tls::management_key),
    ),
    field(
        "ServerConfig.managementTlsCrlPath",
        Text,
        Nothing("managementTlsCrlFiles are in it"),
    ),
    field(
        "ServerConfig.managementTlsCrlFiles",
        Texts,
        By(tls::management_crl),
    ),
    field("ServerConfig.metricsTlsCaFile", Texts, Nothing(METRICS)),
    field("ServerConfig.metricsTlsCert", Text, Nothing(METRICS)),
    field("ServerConfig.metricsTlsPk", Text, Nothing(METRICS)),
    field("ServerConfig.metricsTlsCrlPath", Text, Nothing(METRICS)),
    field("ServerConfig.metricsTlsCrlFiles", Texts, Nothing(METRICS)),
    field(
        "ServerConfig.inferMode",
        Choice(&["standard", "dmi"]),
        Only("standard", NO_PD),
    ),
    field("ServerConfig.interCommTLSEnabled", Bool, Nothing(NO_PD)),
    field("ServerConfig.interCommPort", PORT, Nothing(NO_PD)),
    field("ServerConfig.interCommTlsCaPath", Text, Nothing(NO_PD)),
    field("ServerConfig.interCommTlsCaFiles", Texts, Nothing(NO_PD)),
    field("ServerConfig.interCommTlsCert", Text, Nothing(NO_PD)),
    field("ServerConfig.interCommPk", Text, Nothing(NO_PD)),
    field("ServerConfig.interCommTlsCrlPath", Text, Nothing(NO_PD)),
    field("ServerConfig.interCommTlsCrlFiles", Texts, Nothing(NO_PD)),
    field(
        "ServerConfig.openAiSupport",
        Choice(&["vllm", "openai"]),
        Nothing("OpenAI's fields and vLLM's are always understood"),
    ),
    field(
        "ServerConfig.tokenTimeout",
        Int(1, 3600),
        Times("step_timeout_ms", 1000),
    ),
    field(
        "ServerConfig.e2eTimeout",
        Int(1, 65535),
        Times("timeout_ms", 1000),
    ),
    field(
        "ServerConfig.maxRequestLength",
        Int(1, 100),
        By(whole::request_length),
    ),
    field(
        "ServerConfig.maxJsonDepth",
        Int(1, 1024),
        Nothing("JSON is read to a depth of 128"),
    ),
    field(
        "ServerConfig.distDPServerEnabled",
        Bool,
        Only("false", NO_NODES),
    ),
    field(
        "ServerConfig.layerwiseDisaggregated",
        Bool,
        Only("false", NO_NODES),
    ),
    field(
        "ServerConfig.layerwiseDisaggregatedRoleType",
        Text,
        Nothing(NO_NODES),
    ),
    field(
        "ServerConfig.layerwiseDisaggregatedMasterIpAddress",
        Text,
        Nothing(NO_NODES),
    ),
    field(
        "ServerConfig.layerwiseDisaggregatedSlaveIpAddress",
        Texts,
        Nothing(NO_NODES),
    ),
    field(
        "ServerConfig.layerwiseDisaggregatedDataPort",
        ANY_U32,
        Nothing(NO_NODES),
    ),
    field(
        "ServerConfig.layerwiseDisaggregatedCrtlPort",
        Any,
        Nothing(NO_NODES),
    ),
    field(
        "ServerConfig.HealthCheckConfig",
        Any,
        Nothing("health is read from the steps' progress"),
    ),
    field(
        "ServerConfig.npuUsageThreshold",
        ANY_U32,
        Nothing("health is read from the steps' progress"),
    ),
    field("LogConfig.logLevel", Text, By(whole::log_level)),
    field("LogConfig.dynamicLogLevel", Text, By(whole::log_level)),
    field(
        "LogConfig.dynamicLogLevelValidHours",
        Any,
        Nothing("the log's level holds until the end"),
    ),
    field(
        "LogConfig.dynamicLogLevelValidTime",
        Any,
        Nothing("the log's level holds until the end"),
    ),
];
