//! Server-sent events: drives a running request and lets a dialect write each event as frames. Keep-alive comments while the stream is
//! silent, but only as long as the engine makes progress, so that they hide no hang. Not here: what the frames hold.
//!
//! The status line is held back until the first token (at most one keep-alive interval), so that what is refused before it is a plain
//! HTTP error. After that a failure is one event in the dialect's error shape, and the connection's body ends.

use super::answer::{self, finish_word};
use super::refusal::Refusal;
use super::request_log::LogLine;
use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::web::{Bytes, BytesMut};
use futures_util::stream::{FusedStream, SelectAll};
use futures_util::{Stream, StreamExt};
use ropeteam_actors::generation::GenerateEvent;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Events of one prompt, tagged with its index.
pub type TaggedEvents = Pin<Box<dyn Stream<Item = (usize, GenerateEvent)>>>;

/// Bytes gathered into one write when many events are ready.
const WRITE_BYTES_MAX: usize = 16 << 10;

/// Writes one dialect's frames.
pub trait FrameWriter: Unpin + 'static {
    /// Frames for one event of the prompt with index `prompt`. Never called with a failure.
    fn event(&mut self, prompt: usize, event: GenerateEvent, out: &mut BytesMut);

    /// Frames after all choices have ended.
    fn end(&mut self, out: &mut BytesMut);

    /// Frames that tell a failure; the last ones.
    fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut);
}

/// Appends `data: {json}` and a blank line, with a space after the colon.
pub fn frame(value: &impl Serialize, out: &mut BytesMut) {
    frame_after("data: ", value, out);
}

/// Appends one event whose data line begins with `prefix`.
pub fn frame_after(prefix: &str, value: &impl Serialize, out: &mut BytesMut) {
    match serde_json::to_vec(value) {
        Ok(json) => {
            out.extend_from_slice(prefix.as_bytes());
            out.extend_from_slice(&json);
            out.extend_from_slice(b"\n\n");
        }
        Err(error) => tracing::error!(%error, "an event cannot be written as JSON"),
    }
}

/// A request on its way.
pub struct Running {
    events: SelectAll<TaggedEvents>,
    /// Events read while the status line was held back.
    early: VecDeque<(usize, GenerateEvent)>,
    prompts: usize,
    open_choices: usize,
    prompts_logged: Vec<bool>,
    log: LogLine,
}

impl Running {
    /// A request of `prompts` prompts with `choices` choices each.
    pub fn new(prompts: Vec<TaggedEvents>, choices: u32, log: LogLine) -> Self {
        let count = prompts.len();
        Running {
            events: prompts.into_iter().collect(),
            early: VecDeque::new(),
            prompts: count,
            open_choices: count * choices as usize,
            prompts_logged: vec![false; count],
            log,
        }
    }

    /// Waits for the first token or for `patience`, whichever comes first.
    ///
    /// # Errors
    /// What went wrong before the first token.
    async fn begin(&mut self, patience: Duration) -> Result<(), Refusal> {
        let deadline = Instant::now() + patience;
        let (mut started, mut tokens) = (0, false);
        while !(tokens && started == self.prompts) {
            let Ok(next) = tokio::time::timeout_at(deadline, self.events.next()).await else {
                return Ok(());
            };
            let Some((prompt, event)) = next else {
                return Err(answer::incomplete());
            };
            if let Some(failure) = failure_in(&event) {
                return Err(failure);
            }
            match event {
                GenerateEvent::Started(_) => started += 1,
                _ => tokens = true,
            }
            self.early.push_back((prompt, event));
        }
        Ok(())
    }

    fn note(&mut self, prompt: usize, event: &GenerateEvent) {
        match event {
            GenerateEvent::Tokens(event) => self.log.result(&event.text),
            GenerateEvent::Done(event) => {
                self.open_choices = self.open_choices.saturating_sub(1);
                let first = !std::mem::replace(&mut self.prompts_logged[prompt], true);
                self.log.result(&event.text);
                self.log
                    .choice(finish_word(&event.reason), &event.usage, first);
            }
            GenerateEvent::Started(_) | GenerateEvent::Failed(_) => {}
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, GenerateEvent)>> {
        if let Some(event) = self.early.pop_front() {
            return Poll::Ready(Some(event));
        }
        if self.events.is_terminated() {
            return Poll::Ready(None);
        }
        self.events.poll_next_unpin(cx)
    }
}

fn failure_in(event: &GenerateEvent) -> Option<Refusal> {
    match event {
        GenerateEvent::Failed(error) => Some(error.clone().into()),
        GenerateEvent::Done(event) => Refusal::of_finish(&event.reason),
        _ => None,
    }
}

/// How a stream is kept alive.
pub struct KeepAlive {
    /// Between two comments, and the longest that the status line is held back.
    pub interval: Duration,
    /// Whether the engine still makes progress.
    pub progress: Box<dyn Fn() -> bool>,
}

/// Answers with an event stream.
///
/// # Errors
/// What went wrong before the first token.
pub async fn respond(
    mut running: Running,
    writer: impl FrameWriter,
    keep_alive: KeepAlive,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Result<HttpResponse, Refusal> {
    running.log.streamed();
    if let Err(refusal) = running.begin(keep_alive.interval).await {
        running.log.refused(&refusal);
        return Err(refusal);
    }
    let mut response = HttpResponse::Ok();
    response
        .insert_header((CONTENT_TYPE, "text/event-stream; charset=utf-8"))
        .insert_header((CACHE_CONTROL, "no-cache"))
        .insert_header(("x-accel-buffering", "no"));
    for header in headers {
        response.insert_header(header);
    }
    Ok(response.streaming(EventBody::new(running, writer, keep_alive)))
}

/// The body of an event stream.
struct EventBody<W> {
    running: Option<Running>,
    writer: W,
    keep_alive: KeepAlive,
    silence: Pin<Box<Sleep>>,
}

impl<W: FrameWriter> EventBody<W> {
    fn new(running: Running, writer: W, keep_alive: KeepAlive) -> Self {
        let silence = Box::pin(tokio::time::sleep(keep_alive.interval));
        EventBody {
            running: Some(running),
            writer,
            keep_alive,
            silence,
        }
    }

    /// Writes what is ready. True when the stream is over.
    fn write_ready(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> bool {
        let Some(running) = &mut self.running else {
            return true;
        };
        while out.len() < WRITE_BYTES_MAX {
            let Poll::Ready(next) = running.poll_event(cx) else {
                return false;
            };
            let failure = match &next {
                Some((_, event)) => failure_in(event),
                None => Some(answer::incomplete()),
            };
            if let Some(failure) = failure {
                running.log.refused(&failure);
                self.writer.failure(&failure, out);
                return true;
            }
            if let Some((prompt, event)) = next {
                running.note(prompt, &event);
                self.writer.event(prompt, event, out);
            }
            if running.open_choices == 0 {
                running.log.finished();
                self.writer.end(out);
                return true;
            }
        }
        false
    }

    fn restart_silence(&mut self) {
        let next = Instant::now() + self.keep_alive.interval;
        self.silence.as_mut().reset(next);
    }

    fn poll_comment(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        while self.silence.as_mut().poll(cx).is_ready() {
            self.restart_silence();
            if (self.keep_alive.progress)() {
                return Poll::Ready(Bytes::from_static(b": keep-alive\n\n"));
            }
        }
        Poll::Pending
    }
}

impl<W: FrameWriter> Stream for EventBody<W> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.running.is_none() {
            return Poll::Ready(None);
        }
        let mut out = BytesMut::new();
        if this.write_ready(cx, &mut out) {
            this.running = None;
        }
        if !out.is_empty() {
            this.restart_silence();
            return Poll::Ready(Some(Ok(out.freeze())));
        }
        if this.running.is_none() {
            return Poll::Ready(None);
        }
        this.poll_comment(cx).map(|comment| Some(Ok(comment)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::scripted::{done, failed, started, tokens};
    use actix_web::body::to_bytes;
    use futures_util::stream;
    use ropeteam_actors::generation::RequestError;
    use ropeteam_engine::request::FinishReason;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Writes the kind of each event.
    struct Words;

    impl FrameWriter for Words {
        fn event(&mut self, _: usize, event: GenerateEvent, out: &mut BytesMut) {
            let word = match event {
                GenerateEvent::Tokens(event) => event.text,
                GenerateEvent::Done(_) => "done".into(),
                _ => "started".into(),
            };
            frame(&word, out);
        }
        fn end(&mut self, out: &mut BytesMut) {
            frame(&"end", out);
        }
        fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut) {
            frame(&refusal.message, out);
        }
    }

    fn running(events: impl Stream<Item = GenerateEvent> + 'static) -> Running {
        let tagged: TaggedEvents = Box::pin(events.map(|event| (0, event)));
        Running::new(vec![tagged], 1, LogLine::new(None, "id", "test"))
    }

    fn keep_alive(progress: bool) -> KeepAlive {
        KeepAlive {
            interval: Duration::from_millis(20),
            progress: Box::new(move || progress),
        }
    }

    async fn text(running: Running, progress: bool) -> Result<String, Refusal> {
        let response = respond(running, Words, keep_alive(progress), Vec::new()).await?;
        let body = to_bytes(response.into_body())
            .await
            .expect("the body cannot fail");
        Ok(String::from_utf8(body.to_vec()).expect("frames are text"))
    }

    #[actix_web::test]
    async fn events_become_frames_and_end_once() {
        let events = vec![
            started(&[1]),
            tokens(0, "a\nb", &[5]),
            done(0, "", FinishReason::Length),
        ];
        let text = text(running(stream::iter(events)), true).await.unwrap();
        assert_eq!(
            text,
            "data: \"started\"\n\ndata: \"a\\nb\"\n\ndata: \"done\"\n\ndata: \"end\"\n\n"
        );
    }

    #[actix_web::test]
    async fn what_fails_before_the_first_token_is_no_stream() {
        let events = vec![started(&[1]), failed(RequestError::NoDevice)];
        assert!(text(running(stream::iter(events)), true).await.is_err());
        assert!(text(running(stream::empty()), true).await.is_err());
    }

    #[actix_web::test]
    async fn what_fails_later_is_told_in_the_stream() {
        for end in [
            failed(RequestError::NoDevice),
            done(0, "", FinishReason::DeviceError),
        ] {
            let events = vec![started(&[1]), tokens(0, "a", &[5]), end];
            let text = text(running(stream::iter(events)), true).await.unwrap();
            assert!(text.contains("device") && !text.contains("end\""), "{text}");
        }
    }

    #[actix_web::test]
    async fn a_silent_stream_is_kept_alive_only_while_the_engine_makes_progress() {
        // A clock that goes on only when all wait: a busy machine changes nothing.
        tokio::time::pause();
        // The status line is held back for the first interval; the fifth after it would end at 120 ms.
        for (progress, comments) in [(true, 4), (false, 0)] {
            let late = stream::once(async {
                tokio::time::sleep(Duration::from_millis(110)).await;
                tokens(0, "a", &[5])
            });
            let events = stream::iter(vec![started(&[1])])
                .chain(late)
                .chain(stream::iter(vec![done(0, "", FinishReason::Length)]));
            let text = text(running(events), progress).await.unwrap();
            assert_eq!(text.matches(": keep-alive\n\n").count(), comments, "{text}");
            assert!(text.ends_with("data: \"end\"\n\n"));
        }
    }

    #[actix_web::test]
    async fn dropping_the_body_drops_the_request() {
        struct Witness(Rc<Cell<bool>>);
        impl Drop for Witness {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let dropped = Rc::new(Cell::new(false));
        let witness = Witness(dropped.clone());
        let events =
            stream::iter(vec![started(&[1]), tokens(0, "a", &[5])]).chain(stream::pending());
        let events = events.inspect(move |_| {
            let _keep = &witness;
        });
        let response = respond(running(events), Words, keep_alive(true), Vec::new())
            .await
            .unwrap();
        drop(response);
        assert!(dropped.get());
    }
}
