//! Installs the recorder that keeps all metrics for the Prometheus page. What is counted stands in `engine::observe`, the
//! page itself in `http`.

use crate::VERSION;
use crate::start_error::StartError;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use ropeteam_engine::observe::metric::{
    ALL, BUILD_INFO, Kind, Metric, START_TIME, STEP_ENGINE_DURATION, STEP_HOST_DURATION, Unit,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Values of histograms pile up until somebody sorts them into buckets, so a server whose metrics nobody reads has to.
const UPKEEP_EVERY: Duration = Duration::from_secs(2);

/// Seconds that a client or an operator thinks in: from a token to a whole request.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5,
    0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0,
];
/// Seconds of work that should cost next to nothing.
const SHORT_SECONDS: &[f64] = &[
    1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.5, 1.0,
];
/// Sequences and tokens.
const COUNTS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0,
    16384.0, 32768.0, 65536.0, 131072.0,
];

/// Installs the recorder for this process.
///
/// # Errors
/// When another recorder is installed already.
pub fn install() -> Result<PrometheusHandle, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Other(format!("metrics: {error}"));
    let mut builder = PrometheusBuilder::new();
    for metric in ALL.iter().filter(|metric| metric.kind == Kind::Histogram) {
        builder = builder
            .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets(metric))
            .map_err(|error| failed(&error))?;
    }
    let handle = builder.install_recorder().map_err(|error| failed(&error))?;
    let kept = handle.clone();
    let upkeep = move || {
        loop {
            std::thread::sleep(UPKEEP_EVERY);
            kept.run_upkeep();
        }
    };
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(upkeep)
        .map_err(|error| failed(&error))?;
    Ok(handle)
}

/// Says what runs, and since when.
pub fn identify(model: &str, started: SystemTime) {
    let labels = [("version", VERSION.to_owned()), ("model", model.to_owned())];
    metrics::gauge!(BUILD_INFO.name, &labels).set(1.0);
    let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    metrics::gauge!(START_TIME.name).set(since.as_secs_f64());
}

fn buckets(metric: &Metric) -> &'static [f64] {
    match metric.unit {
        _ if [STEP_ENGINE_DURATION, STEP_HOST_DURATION].contains(metric) => SHORT_SECONDS,
        Unit::Seconds | Unit::Ratio => SECONDS,
        Unit::Count => COUNTS,
    }
}
