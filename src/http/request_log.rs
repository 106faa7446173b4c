//! The request log: one JSON line per request with its id, times, token counts and outcome. Prompt and result only when switched on.
//! Lines go through a bounded channel to a thread of their own: no request waits for a disk. What does not fit is counted and dropped.

use super::answer::Answer;
use super::refusal::Refusal;
use super::wall_clock;
use ropeteam_actors::generation::Usage;
use serde::Serialize;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

/// Lines that may wait for the writer.
const QUEUE_LINES: usize = 4096;

/// Where the lines go.
#[derive(Clone, Debug)]
pub struct RequestLog {
    lines: SyncSender<String>,
    texts: bool,
}

impl RequestLog {
    /// Starts the writing thread. With `texts`, prompts and results are written too.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(writer: Box<dyn Write + Send>, texts: bool) -> std::io::Result<Self> {
        let (lines, queue) = sync_channel(QUEUE_LINES);
        std::thread::Builder::new()
            .name("request-log".into())
            .spawn(move || write_lines(&queue, writer))?;
        Ok(RequestLog { lines, texts })
    }
}

fn write_lines(queue: &Receiver<String>, mut writer: Box<dyn Write + Send>) {
    while let Ok(line) = queue.recv() {
        if let Err(error) = writeln!(writer, "{line}").and_then(|()| writer.flush()) {
            tracing::warn!(%error, "request log cannot be written, no more lines follow");
            return;
        }
    }
}

/// One line in the making; written when it is dropped, whatever became of the request.
#[derive(Debug)]
pub struct LogLine {
    log: Option<RequestLog>,
    arrived: Instant,
    line: Line,
    handed_on: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    time: u64,
    id: String,
    route: &'static str,
    stream: bool,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    finish: Vec<&'static str>,
    prompt_tokens: u32,
    cached_tokens: u32,
    completion_tokens: u32,
    queue_ms: f64,
    ttft_ms: f64,
    total_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
}

impl LogLine {
    /// A line for the request `id` on `route`. Dropped as it is, it says that the client left.
    pub fn new(log: Option<&RequestLog>, id: &str, route: &'static str) -> Self {
        LogLine {
            log: log.cloned(),
            arrived: Instant::now(),
            handed_on: false,
            line: Line {
                time: wall_clock::now(),
                id: id.to_owned(),
                route,
                stream: false,
                outcome: "cancelled",
                error: None,
                finish: Vec::new(),
                prompt_tokens: 0,
                cached_tokens: 0,
                completion_tokens: 0,
                queue_ms: 0.0,
                ttft_ms: 0.0,
                total_ms: 0.0,
                prompt: None,
                result: None,
            },
        }
    }

    /// Hands the line on, to be written by its new owner; nothing is written here any more.
    pub fn take(&mut self) -> LogLine {
        let mut inert = LogLine::new(None, &self.line.id, self.line.route);
        inert.handed_on = true;
        std::mem::replace(self, inert)
    }

    /// The request has that name.
    pub fn named(&mut self, id: &str) {
        id.clone_into(&mut self.line.id);
    }

    /// When the request came in.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// The answer is streamed.
    pub fn streamed(&mut self) {
        self.line.stream = true;
    }

    /// Notes the prompt, if texts are wanted.
    pub fn prompt(&mut self, text: impl FnOnce() -> String) {
        if self.keeps_texts() {
            self.line.prompt = Some(text());
        }
    }

    /// Adds to the result, if texts are wanted.
    pub fn result(&mut self, text: &str) {
        if self.keeps_texts() {
            self.line.result.get_or_insert_default().push_str(text);
        }
    }

    /// One choice ended. The prompt is counted once per prompt: with its first choice.
    pub fn choice(&mut self, finish: &'static str, usage: &Usage, first_of_prompt: bool) {
        self.line.finish.push(finish);
        if first_of_prompt {
            self.line.prompt_tokens += usage.prompt_tokens;
            self.line.cached_tokens += usage.cached_tokens;
        }
        self.line.completion_tokens += usage.completion_tokens;
        self.line.queue_ms = self.line.queue_ms.max(millis(usage.queue_time));
        self.line.ttft_ms = self.line.ttft_ms.max(millis(usage.first_token_time));
    }

    /// Notes a whole answer.
    pub fn answer(&mut self, answer: &Answer) {
        for (index, choice) in answer.choices.iter().enumerate() {
            self.choice(
                super::answer::finish_word(&choice.reason),
                &choice.usage,
                index == 0,
            );
            self.result(&choice.text);
        }
    }

    /// It came to a good end.
    pub fn finished(&mut self) {
        self.line.outcome = "ok";
    }

    /// It was refused or failed.
    pub fn refused(&mut self, refusal: &Refusal) {
        self.line.outcome = refusal.kind.outcome();
        self.line.error = Some(refusal.message.clone());
    }

    fn keeps_texts(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.texts)
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if self.handed_on {
            return;
        }
        self.line.total_ms = millis(self.arrived.elapsed());
        tracing::debug!(id = %self.line.id, route = self.line.route, outcome = self.line.outcome, "request ended");
        let Some(log) = &self.log else { return };
        if let Ok(line) = serde_json::to_string(&self.line)
            && log.lines.try_send(line).is_err()
        {
            metrics::counter!("ropeteam_request_log_lines_dropped_total").increment(1);
        }
    }
}

fn millis(span: std::time::Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}
