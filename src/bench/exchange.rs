//! One request from its sending to the end of its answer, as a record. Not here: when it is sent (`load.rs`).

use super::api::{Manner, Said, Task, refusal_text};
use super::connections::{Connections, explained};
use super::live::Live;
use super::record::{Failure, Record};
use super::sse::SseReader;
use http_body_util::{BodyExt, Limited};
use hyper::Method;
use hyper::body::{Bytes, Incoming};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A whole answer, or a refusal, larger than this is not read on.
const MAX_BODY_BYTES: usize = 64 << 20;

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its body.
    pub body: Bytes,
    /// Tokens that it asks for.
    pub asked: u32,
    /// Tokens of its prompt by our own tokenizer.
    pub prompt_counted: Option<u32>,
}

/// Sends requests to one server in one manner.
pub struct Client {
    /// Its connections.
    pub connections: Arc<Connections>,
    /// How it asks.
    pub manner: Manner,
    /// The longest that a request may take.
    pub timeout: Duration,
    /// Whether answers are kept, to count their tokens.
    pub keep_text: bool,
    /// What a progress display reads.
    pub live: Live,
}

impl Client {
    /// Sends one request, due at `due`, and reads its answer. `began` is the start of the run.
    pub async fn exchange(&self, request: &Ready, began: Instant, due: Instant) -> Record {
        let mut record = Record {
            start: due.saturating_duration_since(began),
            asked: request.asked,
            prompt_counted: request.prompt_counted,
            ..Record::default()
        };
        if self.manner.task == Task::Stream {
            record
                .gaps
                .reserve_exact(request.asked.min(1 << 16) as usize);
        }
        self.live.sent();
        let answer = self.answer(request, due, &mut record);
        let outcome = tokio::time::timeout(self.timeout, answer).await;
        record.failure = outcome.unwrap_or(Err(Failure::Timeout)).err();
        if record.end.is_zero() || record.failure.is_some() {
            record.end = due.elapsed();
        }
        self.live.ended(record.failure.is_some());
        record
    }

    async fn answer(
        &self,
        request: &Ready,
        due: Instant,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let body = request.body.clone();
        let sent = self
            .connections
            .send(Method::POST, self.manner.path(), body);
        let (connection, response) = sent.await?;
        let status = response.status().as_u16();
        let body = response.into_body();
        let whole = match (status, self.manner.task) {
            (200, Task::Stream) => self.stream(body, due, record).await?,
            (200, Task::Text) => self.whole(body, due, record).await?,
            _ => {
                let text = read_whole(body).await.unwrap_or_default();
                self.connections.give_back(connection).await;
                return Err(Failure::Status(status, refusal_text(&text)));
            }
        };
        if whole {
            self.connections.give_back(connection).await;
        }
        Ok(())
    }

    /// Reads a stream; whether it was read to its very end, so that the connection can be used again.
    async fn stream(
        &self,
        mut body: Incoming,
        due: Instant,
        record: &mut Record,
    ) -> Result<bool, Failure> {
        let mut reader = SseReader::default();
        let mut reading = Reading::default();
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                // Its answer is complete: what the connection does now is of no matter.
                Err(_) if reading.ended => return Ok(false),
                Err(error) => return Err(Failure::CutOff(explained(&error))),
            };
            let Some(bytes) = frame.data_ref() else {
                continue;
            };
            let now = due.elapsed();
            let mut event = |data: &[u8]| reading.take(self, data, now, record);
            reader
                .feed(bytes, &mut event)
                .map_err(|_| Failure::Malformed("an event without end".to_owned()))?;
            if let Some(failure) = reading.failure.take() {
                return Err(failure);
            }
        }
        match (reading.ended, record.first) {
            (false, _) => Err(Failure::CutOff(match reader.is_within_event() {
                true => "it ended within an event".to_owned(),
                false => "it ended without its end marker".to_owned(),
            })),
            (true, None) => Err(Failure::Empty),
            (true, Some(_)) => Ok(true),
        }
    }

    async fn whole(
        &self,
        body: Incoming,
        due: Instant,
        record: &mut Record,
    ) -> Result<bool, Failure> {
        let bytes = read_whole(body).await?;
        record.end = due.elapsed();
        let said = self
            .manner
            .api
            .read_whole(&bytes)
            .map_err(malformed(&bytes))?;
        if let Some(error) = said.error {
            return Err(Failure::ErrorEvent(error));
        }
        if !said.token {
            return Err(Failure::Empty);
        }
        record.usage = said.usage;
        if self.keep_text {
            record.text = said.text.into_owned();
        }
        self.live.tokens(record.output_tokens());
        Ok(true)
    }
}

/// How far a stream was understood.
#[derive(Default)]
struct Reading {
    last_event: Duration,
    ended: bool,
    failure: Option<Failure>,
}

impl Reading {
    /// Takes one event that came at `now` after the request was due.
    fn take(&mut self, client: &Client, data: &[u8], now: Duration, record: &mut Record) {
        if self.ended || self.failure.is_some() {
            return;
        }
        let said = match client.manner.api.read_event(data) {
            Ok(said) => said,
            Err(error) => {
                self.failure = Some(malformed(data)(error));
                return;
            }
        };
        if let Some(error) = said.error {
            self.failure = Some(Failure::ErrorEvent(error));
            return;
        }
        if said.token {
            self.token(client, &said, now, record);
        }
        record.usage = said.usage.or(record.usage);
        if said.last {
            self.ended = true;
            record.end = now;
        }
    }

    fn token(&mut self, client: &Client, said: &Said<'_>, now: Duration, record: &mut Record) {
        match record.first {
            None => record.first = Some(now),
            Some(_) => {
                let gap = now.saturating_sub(self.last_event).as_micros();
                record.gaps.push(u32::try_from(gap).unwrap_or(u32::MAX));
            }
        }
        self.last_event = now;
        client.live.tokens(1);
        if client.keep_text {
            record.text.push_str(&said.text);
        }
    }
}

fn malformed(data: &[u8]) -> impl FnOnce(serde_json::Error) -> Failure {
    let start: String = String::from_utf8_lossy(data).chars().take(80).collect();
    move |error| Failure::Malformed(format!("{error} in {start:?}"))
}

async fn read_whole(body: Incoming) -> Result<Bytes, Failure> {
    let collected = Limited::new(body, MAX_BODY_BYTES).collect().await;
    let collected = collected.map_err(|error| Failure::CutOff(error.to_string()))?;
    Ok(collected.to_bytes())
}
