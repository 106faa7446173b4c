//! What shows on real sockets only: clients that leave, send too much, or too slowly.

use super::serving_state;
use crate::http::server::{Door, ServerSettings, serve};
use crate::http::state::AppState;
use actix_web::web::Data;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Starts a server whose steps take `step`, after `change` of its state.
async fn start(step: Duration, change: impl FnOnce(&mut AppState)) -> (u16, Data<AppState>) {
    let state = serving_state(step).await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    change(&mut state);
    let state = Data::new(state);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let door = Door {
        listener,
        tls: None,
    };
    let settings = ServerSettings {
        workers: 1,
        max_connections: 100,
        shutdown: Duration::from_secs(1),
    };
    actix_web::rt::spawn(serve(door, state.clone(), &settings).expect("a server"));
    (port, state)
}

async fn send(port: u16, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("the server listens");
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\n{head}\r\n");
    stream
        .write_all(head.as_bytes())
        .await
        .expect("the head is taken");
    // A server may answer before it has read all.
    let _ = stream.write_all(body).await;
    stream
}

async fn send_json(port: u16, body: &Value) -> TcpStream {
    let body = body.to_string();
    let head = format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    send(port, &head, body.as_bytes()).await
}

async fn all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

fn long(stream: bool) -> Value {
    json!({"prompt": "abc", "max_tokens": 100, "ignore_eos": true, "stream": stream})
}

async fn sessions(state: &AppState) -> usize {
    state
        .serving
        .get()
        .expect("a model")
        .engine
        .snapshot()
        .await
        .sessions
}

/// Waits for half as long as the `long` request of a client that stays would take.
async fn becomes(state: &AppState, wanted: usize) {
    let started = Instant::now();
    while sessions(state).await != wanted {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "still {} requests",
            sessions(state).await
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[actix_web::test]
async fn a_client_that_leaves_is_forgotten_streamed_or_not() {
    let (port, state) = start(Duration::from_millis(200), |_| {}).await;
    for streamed in [false, true] {
        let client = send_json(port, &long(streamed)).await;
        becomes(&state, 1).await;
        drop(client);
        becomes(&state, 0).await;
    }
}

#[actix_web::test]
async fn a_body_over_the_limit_is_refused_so_that_the_client_can_read_it() {
    let (port, _) = start(Duration::ZERO, |state| state.limits.max_body_bytes = 1000).await;
    let large = vec![b'x'; 3 << 20];
    let declared = send(
        port,
        &format!("Content-Length: {}\r\n", large.len()),
        &large,
    )
    .await;
    let answer = all(declared).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("1000 bytes"), "{answer}");

    let mut chunk = b"100000\r\n".to_vec();
    chunk.extend(vec![b'x'; 0x100000]);
    chunk.extend(b"\r\n");
    let answer = all(send(port, "Transfer-Encoding: chunked\r\n", &chunk).await).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[actix_web::test]
async fn a_slow_head_is_cut() {
    let (port, _) = start(Duration::ZERO, |state| {
        state.timeouts.header = Duration::from_millis(200);
    })
    .await;
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("the server listens");
    stream
        .write_all(b"POST /v1/completions HT")
        .await
        .expect("taken");
    assert!(all(stream).await.starts_with("HTTP/1.1 408"));
}

#[actix_web::test]
async fn a_slow_body_is_cut_with_an_error() {
    let (port, _) = start(Duration::ZERO, |state| {
        state.timeouts.body = Duration::from_millis(200);
    })
    .await;
    let answer = all(send(port, "Content-Length: 1000\r\n", b"{").await).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"error\""), "{answer}");
}

#[actix_web::test]
async fn packed_bodies_are_unpacked_up_to_the_limit() {
    // printf '{"prompt":"abc","max_tokens":2}' | gzip -n
    const PACKED: &[u8] = include_bytes!("packed_request.gz");
    let (port, _) = start(Duration::ZERO, |_| {}).await;
    let head = format!(
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: {}\r\n",
        PACKED.len()
    );
    let answer = all(send(port, &head, PACKED).await).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let head = "Content-Encoding: br\r\nContent-Length: 3\r\nConnection: close\r\n";
    assert!(
        all(send(port, head, b"xyz").await)
            .await
            .starts_with("HTTP/1.1 415")
    );
}
