//! `GET /v1/events`: the engine's events as they happen, as server-sent events. `?names=finished,device_died` keeps to those. Times are
//! in seconds. Nobody waits for a reader: the bus keeps a bounded number of events for it, and one that falls further behind gets
//! a last event `lagged` and is cut.

use crate::http::openai::error;
use crate::http::refusal::Refusal;
use crate::http::state::AppState;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::{Bytes, Data, Query};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use ropeteam_actors::bus::Subscription;
use ropeteam_engine::observe::Event;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::time::Duration;

#[derive(Deserialize)]
struct Asked {
    names: Option<String>,
}

/// Streams until the reader leaves or falls behind, or the engine ends.
pub async fn stream(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    let names = match names(&request) {
        Ok(names) => names,
        Err(refusal) => return error::response(&refusal),
    };
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    let feed = Feed {
        events: serving.engine.subscribe(),
        names,
        silence: state.timeouts.sse_keepalive,
        over: false,
    };
    let frames = stream::unfold(feed, |mut feed| async move {
        let frame = feed.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(frame)), feed))
    });
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "text/event-stream; charset=utf-8"))
        .insert_header((CACHE_CONTROL, "no-cache"))
        .streaming(frames)
}

/// The names asked for; none: all.
fn names(request: &HttpRequest) -> Result<Vec<String>, Refusal> {
    let Ok(asked) = Query::<Asked>::from_query(request.query_string()) else {
        return Err(Refusal::invalid("names", "names must be given once"));
    };
    let names = asked.into_inner().names.unwrap_or_default();
    let names: Vec<String> = names
        .split(',')
        .filter(|n| !n.is_empty())
        .map(str::to_owned)
        .collect();
    match names
        .iter()
        .find(|name| !Event::NAMES.contains(&name.as_str()))
    {
        None => Ok(names),
        Some(unknown) => {
            let known = Event::NAMES.join(", ");
            let message = format!("names: `{unknown}` is no event, expected some of {known}");
            Err(Refusal::invalid("names", message))
        }
    }
}

/// One reader's events.
struct Feed {
    events: Subscription,
    names: Vec<String>,
    silence: Duration,
    over: bool,
}

impl Feed {
    async fn next(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        loop {
            let Ok(event) = tokio::time::timeout(self.silence, self.events.next()).await else {
                return Some(": keep-alive\n\n".to_owned());
            };
            let event = event?;
            if self.events.lost() > 0 {
                self.over = true;
                return Some(frame("lagged", &json!({"lost": self.events.lost()})));
            }
            if self.names.is_empty() || self.names.iter().any(|name| name == event.name()) {
                let data = serde_json::to_value(&*event).unwrap_or_default();
                return Some(frame(event.name(), &in_seconds(data)));
            }
        }
    }
}

fn frame(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Serde writes a duration as whole seconds and nanoseconds; readers get one number.
fn in_seconds(value: Value) -> Value {
    match value {
        Value::Object(fields) => match seconds(&fields) {
            Some(seconds) => json!(seconds),
            None => {
                let inside = fields
                    .into_iter()
                    .map(|(key, value)| (key, in_seconds(value)));
                Value::Object(inside.collect())
            }
        },
        Value::Array(items) => Value::Array(items.into_iter().map(in_seconds).collect()),
        other => other,
    }
}

fn seconds(fields: &Map<String, Value>) -> Option<f64> {
    let part = |key: &str| fields.get(key).and_then(Value::as_f64);
    match (fields.len(), part("secs"), part("nanos")) {
        (2, Some(secs), Some(nanos)) => Some(secs + nanos / 1e9),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_engine::ids::SeqId;

    #[test]
    fn durations_become_seconds_and_names_are_those_of_the_wire() {
        let event = Event::FirstToken {
            seq: SeqId(3),
            since_arrival: Duration::from_millis(1250),
        };
        let data = in_seconds(serde_json::to_value(&event).expect("events are JSON"));
        assert_eq!(
            data,
            json!({"event": "first_token", "seq": 3, "since_arrival": 1.25})
        );
        assert!(Event::NAMES.contains(&event.name()));
    }
}
