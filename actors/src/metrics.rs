//! The actor that turns events into metrics. It only listens: names and meanings are in `engine::observe::metric`, the recorder
//! behind the `metrics` facade is the host application's choice.

use crate::bus::Subscription;
use crate::clock::Clock;
use crate::messages::Snapshot;
use crate::rates::RecentSum;
use actix::{Actor, AsyncContext, Context, Handler, MessageResult};
use metrics::{counter, gauge, histogram};
use ropeteam_engine::device_core::Load;
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::{DeviceId, Epoch};
use ropeteam_engine::observe::metric as m;
use ropeteam_engine::observe::{Event, FinishedRequest, Outcome, StepDone};
use serde::Serialize;
use std::time::Duration;

/// Events are read this often, not one by one: to wake up with every step would take time from the step that runs.
const READ_EVERY: Duration = Duration::from_millis(100);
/// The same while so many come that the bus would overflow.
const READ_EVERY_WHEN_BUSY: Duration = Duration::from_millis(5);
/// Events in one reading from which on there are many.
const BUSY_EVENTS: usize = 256;

/// The metrics actor.
pub(crate) struct Metrics {
    clock: Clock,
    events: Subscription,
    rates: Rates,
    totals: MetricsView,
}

#[derive(Default)]
struct Rates {
    ended: RecentSum,
    failed: RecentSum,
    generated: RecentSum,
    prompt: RecentSum,
}

/// Totals since the start and rates over the last ten seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MetricsView {
    /// Requests that reached the engine.
    pub received: u64,
    /// Requests that ended after they were admitted.
    pub finished: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: u64,
    /// Generated tokens of ended requests.
    pub generated_tokens: u64,
    /// Requests that ended per second.
    pub requests_per_second: f64,
    /// Generated tokens per second.
    pub generated_tokens_per_second: f64,
    /// Prompt tokens computed per second.
    pub prompt_tokens_per_second: f64,
    /// Share of the recently ended requests that ended with timeout or device_error.
    pub failed_requests_ratio: f64,
    /// Events that this actor lost because it was slow.
    pub lost_events: u64,
}

impl Metrics {
    pub fn new(clock: Clock, events: Subscription) -> Self {
        Metrics {
            clock,
            events,
            rates: Rates::default(),
            totals: MetricsView::default(),
        }
    }

    /// Reads what has been published, and comes again.
    fn read(&mut self, ctx: &mut Context<Self>) {
        let pause = match self.catch_up() {
            0..BUSY_EVENTS => READ_EVERY,
            _ => READ_EVERY_WHEN_BUSY,
        };
        ctx.run_later(pause, Self::read);
    }

    /// Records all events that are there; returns how many.
    fn catch_up(&mut self) -> usize {
        let mut count = 0;
        while let Some(event) = self.events.try_next() {
            self.record(&event);
            count += 1;
        }
        self.totals.lost_events = self.events.lost();
        count
    }

    fn record(&mut self, event: &Event) {
        match event {
            Event::Received { .. } => {
                self.totals.received += 1;
                counter!(m::REQUESTS_RECEIVED.name).increment(1);
            }
            Event::Admitted { prompt_tokens, .. } => {
                self.totals.prompt_tokens += u64::from(*prompt_tokens);
                counter!(m::PROMPT_TOKENS.name).increment(u64::from(*prompt_tokens));
                histogram!(m::REQUEST_PROMPT_TOKENS.name).record(f64::from(*prompt_tokens));
            }
            Event::StepDone(step) => self.step(step),
            Event::Preempted { device, seqs } => {
                counter!(m::PREEMPTIONS.name, "device" => device.to_string())
                    .increment(seqs.len() as u64);
            }
            Event::Finished(request) => self.finished(request),
            Event::Refused { reason, .. } => {
                self.totals.refused += 1;
                counter!(m::REQUESTS_REFUSED.name, "reason" => reason.as_str()).increment(1);
            }
            Event::Replayed { .. } => counter!(m::REQUESTS_REPLAYED.name).increment(1),
            Event::DeviceUp {
                device,
                epoch,
                capacity,
            } => {
                up(*device, *epoch, capacity);
                // There from the start, so that its first increase can be seen.
                counter!(m::PREEMPTIONS.name, "device" => device.to_string()).increment(0);
            }
            Event::DeviceDied { device, .. } => down(*device),
            Event::Restarting { device, cause, .. } => {
                let device = device.to_string();
                counter!(m::DEVICE_RESTARTS.name, "device" => device, "cause" => cause.as_str())
                    .increment(1);
            }
            Event::Load { device, load, .. } => record_load(*device, load),
            Event::Queue { waiting, running } => {
                gauge!(m::REQUESTS_WAITING.name).set(*waiting as f64);
                gauge!(m::REQUESTS_RUNNING.name).set(*running as f64);
            }
            // Counted with the request's end, or of no interest to a counter.
            Event::Scheduled { .. }
            | Event::FirstToken { .. }
            | Event::DeviceGivenUp { .. }
            | Event::Managed { .. }
            | Event::Draining { .. } => {}
        }
    }

    fn step(&mut self, step: &StepDone) {
        let (now, held) = (self.clock.now(), &step.counts);
        self.rates
            .generated
            .add(u64::from(step.generated_tokens), now);
        self.rates.prompt.add(u64::from(held.prefill_tokens), now);
        let device = step.device.to_string();
        let kind = if held.prefill_tokens > 0 {
            "prefill"
        } else {
            "decode"
        };
        let seqs = f64::from(held.prefill_seqs + held.decode_seqs);
        let tokens = f64::from(held.prefill_tokens + held.decode_tokens);
        histogram!(m::BATCH_SIZE.name, "device" => device.clone()).record(seqs);
        gauge!(m::BATCH_CURRENT_SIZE.name, "device" => device.clone()).set(seqs);
        histogram!(m::BATCH_TOKENS.name, "device" => device.clone()).record(tokens);
        histogram!(m::STEP_DURATION.name, "device" => device.clone(), "kind" => kind)
            .record(step.duration);
        histogram!(m::STEP_ENGINE_DURATION.name, "device" => device.clone())
            .record(step.engine_duration);
        if held.launches > 0 {
            let busy = Duration::from_micros(held.host_us.into());
            histogram!(m::STEP_HOST_DURATION.name, "device" => device.clone(), "kind" => kind)
                .record(busy);
            gauge!(m::STEP_LAUNCHES.name, "device" => device.clone(), "kind" => kind)
                .set(f64::from(held.launches));
        }
        if held.decode_seqs > 0 {
            histogram!(m::INTER_TOKEN_LATENCY.name).record(step.duration + step.engine_duration);
        }
        let counts = [
            (m::PREFIX_CACHE_QUERIES.name, held.prefix_queried_tokens),
            (m::PREFIX_CACHE_HITS.name, held.prefix_hit_tokens),
            (m::DRAFTS.name, held.draft_seqs),
            (m::DRAFT_TOKENS.name, held.draft_tokens),
            (m::ACCEPTED_TOKENS.name, held.accepted_tokens),
        ];
        for (name, count) in counts {
            counter!(name, "device" => device.clone()).increment(u64::from(count));
        }
        for (kind, count) in [
            ("prefill", held.prefill_tokens),
            ("decode", held.decode_tokens),
        ] {
            counter!(m::STEP_TOKENS.name, "device" => device.clone(), "kind" => kind)
                .increment(u64::from(count));
        }
    }

    fn finished(&mut self, request: &FinishedRequest) {
        let now = self.clock.now();
        let generated = u64::from(request.generated_tokens);
        self.totals.finished += 1;
        self.totals.generated_tokens += generated;
        self.rates.ended.add(1, now);
        if matches!(request.outcome, Outcome::Timeout | Outcome::DeviceError) {
            self.rates.failed.add(1, now);
        }
        counter!(m::REQUESTS_FINISHED.name, "outcome" => request.outcome.as_str()).increment(1);
        counter!(m::GENERATED_TOKENS.name).increment(generated);
        if let Some(stage) = request.cancelled_in {
            counter!(m::REQUESTS_CANCELLED.name).increment(1);
            counter!(m::REQUESTS_CANCELLED_IN.name, "stage" => stage.as_str()).increment(1);
        }
        histogram!(m::REQUEST_DURATION.name).record(request.total_time);
        histogram!(m::REQUEST_GENERATED_TOKENS.name).record(generated as f64);
        histogram!(m::REQUEST_MAX_TOKENS.name).record(f64::from(request.max_tokens));
        record_phases(request);
    }

    /// Brings the gauges that change with time alone up to date.
    fn refresh(&mut self, _: &mut Context<Self>) {
        let view = self.view();
        gauge!(m::REQUESTS_PER_SECOND.name).set(view.requests_per_second);
        gauge!(m::GENERATED_TOKENS_PER_SECOND.name).set(view.generated_tokens_per_second);
        gauge!(m::PROMPT_TOKENS_PER_SECOND.name).set(view.prompt_tokens_per_second);
        gauge!(m::FAILED_REQUESTS_RATIO.name).set(view.failed_requests_ratio);
    }

    fn view(&mut self) -> MetricsView {
        let now = self.clock.now();
        let ended = self.rates.ended.sum(now).max(1);
        MetricsView {
            requests_per_second: self.rates.ended.per_second(now),
            generated_tokens_per_second: self.rates.generated.per_second(now),
            prompt_tokens_per_second: self.rates.prompt.per_second(now),
            failed_requests_ratio: self.rates.failed.sum(now) as f64 / ended as f64,
            ..self.totals.clone()
        }
    }
}

fn record_phases(request: &FinishedRequest) {
    let (queue, first, last) = (
        request.queue_time,
        request.first_token_time,
        request.last_token_time,
    );
    if let Some(queue) = queue {
        histogram!(m::QUEUE_TIME.name).record(queue);
    }
    if let Some(first) = first {
        histogram!(m::TIME_TO_FIRST_TOKEN.name).record(first);
    }
    if let (Some(queue), Some(first)) = (queue, first) {
        histogram!(m::PREFILL_TIME.name).record(first.saturating_sub(queue));
    }
    if let (Some(queue), Some(last)) = (queue, last) {
        histogram!(m::INFERENCE_TIME.name).record(last.saturating_sub(queue));
    }
    if let (Some(first), Some(last)) = (first, last) {
        let decode = last.saturating_sub(first);
        histogram!(m::DECODE_TIME.name).record(decode);
        // Choices run side by side, so the time per token is that of one of them.
        let per_choice = request.generated_tokens / request.choices.max(1);
        if per_choice > 1 {
            histogram!(m::TIME_PER_OUTPUT_TOKEN.name).record(decode / (per_choice - 1));
        }
    }
}

fn up(device: DeviceId, epoch: Epoch, capacity: &Capacity) {
    let device = device.to_string();
    gauge!(m::DEVICE_UP.name, "device" => device.clone()).set(1.0);
    gauge!(m::DEVICE_EPOCH.name, "device" => device.clone()).set(f64::from(epoch.0));
    gauge!(m::KV_BLOCKS.name, "device" => device.clone()).set(f64::from(capacity.blocks));
    gauge!(m::KV_BLOCKS_FREE.name, "device" => device.clone()).set(f64::from(capacity.blocks));
    gauge!(m::KV_BLOCKS_CACHED.name, "device" => device.clone()).set(0.0);
    gauge!(m::KV_USAGE.name, "device" => device.clone()).set(0.0);
    gauge!(m::BATCH_CURRENT_SIZE.name, "device" => device.clone()).set(0.0);
    gauge!(m::KV_BLOCK_SIZE.name, "device" => device).set(f64::from(capacity.block_size));
}

fn down(device: DeviceId) {
    let device = device.to_string();
    gauge!(m::DEVICE_UP.name, "device" => device.clone()).set(0.0);
    gauge!(m::BATCH_CURRENT_SIZE.name, "device" => device).set(0.0);
}

fn record_load(device: DeviceId, load: &Load) {
    let device = device.to_string();
    let free = f64::from(load.blocks_free + load.blocks_cached);
    gauge!(m::KV_BLOCKS_FREE.name, "device" => device.clone()).set(free);
    gauge!(m::KV_BLOCKS_CACHED.name, "device" => device.clone()).set(f64::from(load.blocks_cached));
    gauge!(m::KV_USAGE.name, "device" => device.clone()).set(load.kv_usage());
    if load.running == 0 {
        gauge!(m::BATCH_CURRENT_SIZE.name, "device" => device).set(0.0);
    }
}

/// Tells the recorder what each metric means.
fn describe_all() {
    for metric in m::ALL {
        match metric.kind {
            m::Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            m::Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            m::Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

/// Counters without labels are there from the start, so that their first increase can be seen.
fn begin_counters() {
    for metric in m::ALL {
        if metric.kind == m::Kind::Counter && metric.labels.is_empty() {
            counter!(metric.name).increment(0);
        }
    }
    gauge!(m::REQUESTS_WAITING.name).set(0.0);
    gauge!(m::REQUESTS_RUNNING.name).set(0.0);
}

impl Actor for Metrics {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        describe_all();
        begin_counters();
        self.read(ctx);
        ctx.run_interval(Duration::from_secs(1), Metrics::refresh);
    }
}

impl Handler<Snapshot<MetricsView>> for Metrics {
    type Result = MessageResult<Snapshot<MetricsView>>;

    fn handle(&mut self, _: Snapshot<MetricsView>, _: &mut Context<Self>) -> Self::Result {
        self.catch_up();
        MessageResult(self.view())
    }
}
