//! What MindIE's management port tells: `/info`, `/v1/config`, `/v2/status` and its part of `/v1/status`, `/metrics-json`,
//! `/v2/models/{model}/getSlotCount`, `/v1/engine-server/running-status`; and what of it is not offered, refused by name.

use super::health::{self, stopped};
use super::models::check_model;
use super::{Refusal, error};
use crate::http::metrics_page::{self, Samples};
use crate::http::refusal::Kind;
use crate::http::state::{AppState, Serving};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_engine::observe::metric::{self, Metric};
use ropeteam_engine::scheduler::SchedulerSnapshot;
use serde::Serialize;
use serde_json::{Value, json};

/// The loaded model, or why there is none.
fn serving(state: &AppState) -> Result<&Serving, Refusal> {
    match state.serving.get() {
        _ if state.is_draining() => Err(stopped()),
        Some(serving) => Ok(serving),
        None => Err(Refusal::loading()),
    }
}

/// Answers `GET /info` on the management port: TGI's facts in MindIE's shape.
pub async fn info(state: Data<AppState>) -> HttpResponse {
    let serving = match serving(&state) {
        Ok(serving) => serving,
        Err(refusal) => return error::response(&refusal),
    };
    let (model, limits) = (&serving.model, &state.limits);
    HttpResponse::Ok().json(json!({
        "docker_label": null,
        "max_batch_total_tokens": limits.max_prefill_tokens,
        "max_best_of": 1,
        "max_concurrent_requests": limits.max_running,
        "max_stop_sequences": null,
        "max_waiting_tokens": null,
        "sha": null,
        "validation_workers": null,
        "version": env!("CARGO_PKG_VERSION"),
        "waiting_served_ratio": null,
        "models": [{
            "model_device_type": model.device_type,
            "model_dtype": model.dtype,
            "model_id": model.name(),
            "model_pipeline_tag": "text-generation",
            "model_sha": model.revision,
            "max_total_tokens": model.max_model_len,
        }],
        "max_input_length": model.max_input_len,
    }))
}

/// Answers `GET /v1/config`.
pub async fn config(state: Data<AppState>) -> HttpResponse {
    let serving = match serving(&state) {
        Ok(serving) => serving,
        Err(refusal) => return error::response(&refusal),
    };
    let block = serving.engine.limits().map(|limits| limits.block_size);
    HttpResponse::Ok().json(json!({
        "modelName": serving.model.name(),
        "maxSeqLen": serving.model.max_model_len,
        "npuMemSize": -1,
        "cpuMemSize": 0,
        "worldSize": serving.engine.state().devices,
        "maxOutputLen": serving.model.max_output_len,
        "cacheBlockSize": block,
    }))
}

/// MindIE's part of `GET /v1/status`.
#[derive(Serialize)]
pub struct StatusView {
    service: Service,
    resource: Resource,
    #[serde(rename = "linkStatus")]
    links: Links,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    role_status: &'static str,
    current_role: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    avail_slots_num: u64,
    avail_block_num: u64,
    waiting_request_num: u64,
    running_request_num: u64,
    swapped_request_num: u64,
    free_npu_block_nums: u64,
    free_cpu_block_nums: u64,
    total_npu_block_nums: u64,
    total_cpu_block_nums: u64,
}

/// No peers: prefill and decode are not separated.
#[derive(Default, Serialize)]
struct Links {
    peers: [(); 0],
}

impl StatusView {
    /// From the scheduler's view; `most` is the number of sequences that a device runs at once.
    pub fn of(queue: &SchedulerSnapshot, most: u32) -> Self {
        let sum = |of: fn(&ropeteam_engine::device_core::Load) -> u32| -> u64 {
            let up = queue.devices.iter().filter(|device| device.up);
            up.map(|device| u64::from(of(&device.load))).sum()
        };
        StatusView {
            service: Service {
                role_status: "RoleReady",
                current_role: "none",
            },
            resource: Resource {
                avail_slots_num: free_slots(queue, most),
                avail_block_num: sum(|load| load.blocks_available()),
                waiting_request_num: queue.waiting as u64,
                running_request_num: queue.running as u64,
                swapped_request_num: 0,
                free_npu_block_nums: sum(|load| load.blocks_free + load.blocks_cached),
                free_cpu_block_nums: 0,
                total_npu_block_nums: sum(|load| load.blocks_total),
                total_cpu_block_nums: 0,
            },
            links: Links::default(),
        }
    }
}

fn slots(queue: &SchedulerSnapshot, most: u32) -> u64 {
    let up = queue.devices.iter().filter(|device| device.up).count();
    up as u64 * u64::from(most)
}

fn free_slots(queue: &SchedulerSnapshot, most: u32) -> u64 {
    slots(queue, most).saturating_sub(queue.running as u64)
}

/// The scheduler's view, or why there is none.
async fn queue(state: &AppState) -> Result<SchedulerSnapshot, Refusal> {
    let queue = serving(state)?.engine.queue().await;
    queue.ok_or_else(crate::http::answer::incomplete)
}

/// Answers `GET /v2/status`: `/v1/status` with the blocks of each device.
pub async fn status_v2(state: Data<AppState>) -> HttpResponse {
    let queue = match queue(&state).await {
        Ok(queue) => queue,
        Err(refusal) => return error::response(&refusal),
    };
    let view = StatusView::of(&queue, state.limits.max_running);
    let blocks = |device: &ropeteam_engine::scheduler::DeviceView| {
        (device.device.0, device.load.blocks_available())
    };
    let up = queue.devices.iter().filter(|device| device.up);
    let per_device: Vec<(u16, u32)> = up.map(blocks).collect();
    let most = per_device.iter().map(|(_, blocks)| *blocks).max();
    let (slots, all) = (view.resource.avail_slots_num, view.resource.avail_block_num);
    let mut json = match serde_json::to_value(view) {
        Ok(json) => json,
        Err(_) => return HttpResponse::InternalServerError().finish(),
    };
    if let Some(resource) = json["resource"].as_object_mut() {
        resource.insert("totalAvailNpuSlotsNum".into(), slots.into());
        resource.insert("totalAvailNpuBlockNum".into(), all.into());
        resource.insert("dpInstMap".into(), json!(per_device));
        resource.insert("maxAvailNpuBlockNum".into(), most.unwrap_or(0).into());
    }
    HttpResponse::Ok().json(json)
}

/// Answers `GET /v2/models/{model}/getSlotCount`.
pub async fn slot_count(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    let known = serving(&state).and_then(|serving| {
        check_model(&request, serving)?;
        Ok(serving)
    });
    let serving = match known {
        Ok(serving) => serving,
        Err(refusal) => return error::response(&refusal),
    };
    let queue = match queue(&state).await {
        Ok(queue) => queue,
        Err(refusal) => return error::response(&refusal),
    };
    let size = serving
        .engine
        .limits()
        .map_or(0, |limits| limits.block_size);
    let most = state.limits.max_running;
    let blocks = StatusView::of(&queue, most).resource.avail_block_num;
    HttpResponse::Ok().json(json!({
        "total_slots": slots(&queue, most),
        "free_slots": free_slots(&queue, most),
        "available_tokens_length": blocks * u64::from(size),
    }))
}

/// Answers `GET /metrics-json`. The times are means since the start, in ms, and 0 where metrics are switched off.
pub async fn metrics_json(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    let queue = match queue(&state).await {
        Ok(queue) => queue,
        Err(refusal) => return error::response(&refusal),
    };
    let page = metrics_page::rendered(&state).await.unwrap_or_default();
    let samples = Samples::of(&page);
    let millis = |metric: &Metric| (samples.mean(metric).unwrap_or(0.0) * 1e3).round() as u64;
    let blocks = StatusView::of(&queue, state.limits.max_running)
        .resource
        .avail_block_num;
    let instance = request.app_config().local_addr().to_string();
    let sample = |(name, value): (&str, u64)| {
        json!({
            "metric": [{"__name__": name, "job": "node", "instance": instance}],
            "value": value.to_string(),
        })
    };
    let values = [
        ("TTFT", millis(&metric::TIME_TO_FIRST_TOKEN)),
        ("TBT", millis(&metric::TIME_PER_OUTPUT_TOKEN)),
        ("waitingInferRequestNum", queue.waiting as u64),
        (
            "processingInferRequestNum",
            (queue.waiting + queue.running) as u64,
        ),
        ("remainBlocks", blocks),
    ];
    let result: Vec<Value> = values.into_iter().map(sample).collect();
    HttpResponse::Ok().json(json!({"resultType": "vector", "result": result}))
}

/// Answers `GET /v1/engine-server/running-status`. Faults are in the log and in `/v1/devices`, not here.
pub async fn running_status(state: Data<AppState>) -> HttpResponse {
    let status = health::status(&state).await;
    HttpResponse::Ok().json(json!({"status": status, "errors": []}))
}

/// Answers what MindIE has and this server has not: 400, as for every other thing that is not offered.
pub async fn not_offered(request: HttpRequest) -> HttpResponse {
    let path = request.path();
    let why = match path {
        "/v1/engine-server/fault-handling-command" => {
            "devices are restarted by themselves, or with POST /v1/devices/{id}/restart"
        }
        path if path.contains("lora") => "adapters are not supported",
        _ => "prefill and decode are not separated",
    };
    let message = format!("{path} is not offered by this server: {why}");
    HttpResponse::BadRequest().json(error::Body::of(&Refusal::new(
        Kind::MethodNotAllowed,
        message,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_engine::device_core::Load;
    use ropeteam_engine::ids::{DeviceId, Epoch};
    use ropeteam_engine::placement::Role;
    use ropeteam_engine::scheduler::DeviceView;

    #[test]
    fn only_devices_that_are_up_are_counted() {
        let device = |id: u16, up: bool| DeviceView {
            device: DeviceId(id),
            epoch: Epoch(1),
            up,
            held_back: false,
            role: Role::Mixed,
            running: 1,
            credit_blocks: 0,
            load: Load {
                blocks_free: 10,
                blocks_cached: 5,
                blocks_total: 20,
                blocks_wanted: 3,
                ..Load::default()
            },
        };
        let queue = SchedulerSnapshot {
            draining: false,
            waiting: 2,
            max_queue: 4,
            running: 3,
            tenants: Vec::new(),
            devices: vec![device(0, true), device(1, false)],
        };
        let view = serde_json::to_value(StatusView::of(&queue, 8)).expect("JSON");
        let resource = &view["resource"];
        assert_eq!(resource["availSlotsNum"], 5);
        assert_eq!(resource["availBlockNum"], 12);
        assert_eq!(resource["freeNpuBlockNums"], 15);
        assert_eq!(resource["totalNpuBlockNums"], 20);
        assert_eq!(resource["waitingRequestNum"], 2);
        assert_eq!(view["linkStatus"], json!({"peers": []}));
        assert_eq!(view["service"]["roleStatus"], "RoleReady");
    }
}
