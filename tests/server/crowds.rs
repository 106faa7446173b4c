//! Crowds and rude clients beside an honest one: memory stays bounded and the honest one keeps its speed. With `ROPETEAM_CROWDS=full` the
//! crowds are 10,000 idle connections and 2,000 streams (`ulimit -n 40000` first), else a tenth of that and less.

use crate::http::{completion_stream, open, post, read_answer, send_raw};
use crate::process::Server;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const SIMULATED: [&str; 2] = ["--device", "simulated"];

fn server(flags: &[&str]) -> Server {
    Server::start_with(&[&SIMULATED, flags].concat())
}

fn full() -> bool {
    std::env::var("ROPETEAM_CROWDS").is_ok_and(|word| word == "full")
}

fn stream(max_tokens: u32) -> Value {
    json!({"model": "m", "prompt": "abc", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true, "stream": true})
}

/// Memory of the server, in KiB.
fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let status = status.expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("its memory")
}

/// How long an honest client waits for 50 tokens.
fn honest(server: &Server) -> Duration {
    let begun = Instant::now();
    let answer = read_answer(open(server.port, "/v1/completions", &stream(50)));
    assert_eq!(completion_stream(&answer).1, "length");
    begun.elapsed()
}

/// The best of a few, for the machine may be busy otherwise.
fn best(server: &Server) -> Duration {
    let times = (0..4).map(|_| honest(server));
    times.min().expect("some")
}

fn nothing_is_left(server: &Server) {
    server.wait_metric("ropeteam_requests_running", 0.0);
    server.wait_metric("ropeteam_requests_waiting", 0.0);
}

#[test]
fn idle_connections_cost_little_and_slow_nobody_down() {
    let count = if full() { 10_000 } else { 500 };
    let server = server(&["--header-timeout-ms", "600000"]);
    let (alone, before) = (best(&server), memory(&server));
    let idle: Vec<TcpStream> = (0..count).map(|_| send_raw(server.port, b"")).collect();
    let (beside, grown) = (best(&server), memory(&server).saturating_sub(before));
    eprintln!("{count} idle: {grown} KiB more, 50 tokens in {beside:?}, alone {alone:?}");
    assert!(
        grown < 16 * count + 32 * 1024,
        "{grown} KiB for {count} connections"
    );
    assert!(
        beside < 2 * alone + Duration::from_millis(200),
        "{beside:?}, alone {alone:?}"
    );
    drop(idle);
}

#[test]
fn many_streams_at_once_all_come_to_their_end() {
    let count = if full() { 2000 } else { 100 };
    let server = server(&[
        "--max-queue",
        "4000",
        "--queue-timeout-ms",
        "none",
        "--simulated-time",
        "none",
    ]);
    let before = memory(&server);
    let begun = Instant::now();
    let streams: Vec<TcpStream> = (0..count)
        .map(|_| open(server.port, "/v1/completions", &stream(40)))
        .collect();
    let held = memory(&server).saturating_sub(before);
    let again = open(server.port, "/v1/completions", &stream(40));
    let wanted = completion_stream(&read_answer(again));
    assert_eq!(wanted.1, "length");
    for stream in streams {
        assert_eq!(completion_stream(&read_answer(stream)), wanted);
    }
    let took = begun.elapsed();
    eprintln!("{count} streams: {took:?}, {held} KiB more");
    assert!(
        held < 256 * count + 64 * 1024,
        "{held} KiB for {count} streams"
    );
    nothing_is_left(&server);
}

#[test]
fn clients_that_do_not_read_hold_a_bounded_buffer_and_are_cut() {
    let flags = [
        "--write-timeout-ms",
        "1000",
        "--simulated-time",
        "none",
        "--max-running",
        "64",
    ];
    let server = server(&flags);
    let before = memory(&server);
    // Each has some megabytes to read, more than sockets and buffers hold.
    let deaf: Vec<TcpStream> = (0..20)
        .map(|_| open(server.port, "/v1/completions", &stream(8000)))
        .collect();
    assert!(honest(&server) < Duration::from_secs(20));
    nothing_is_left(&server);
    let grown = memory(&server).saturating_sub(before);
    assert!(grown < 128 * 1024, "{grown} KiB");
    drop(deaf);
}

#[test]
fn slow_heads_huge_heads_and_garbage_are_cut_and_the_honest_are_served() {
    let server = server(&["--header-timeout-ms", "500"]);
    let before = memory(&server);
    let slow: Vec<TcpStream> = (0..50)
        .map(|_| {
            send_raw(
                server.port,
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-A: ",
            )
        })
        .collect();
    let body = stream(2).to_string();
    let good = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let garbage = [
        good.as_bytes(),
        &[0xfe; 5000],
        b"\r\n\r\nGET / HTTP/9.9\r\n\r\n",
    ]
    .concat();
    let mut rude = vec![
        send_raw(server.port, &garbage),
        send_raw(server.port, &[0; 100_000]),
        send_raw(server.port, b"GET /health HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
        send_raw(server.port, b"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"),
    ];
    // A head of 4 MB in one header, and one of 100,000 headers.
    let long = [b"GET /health HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 4 << 20]].concat();
    let many = [
        b"GET /health HTTP/1.1\r\n".to_vec(),
        b"A: b\r\n".repeat(100_000),
    ]
    .concat();
    rude.extend([send_raw(server.port, &long), send_raw(server.port, &many)]);
    honest(&server);
    for connection in rude.into_iter().chain(slow) {
        // Answered or not: it ends, and nobody waits for it.
        let mut bytes = Vec::new();
        let _ = connection.take(1 << 20).read_to_end(&mut bytes);
        assert!(
            !bytes.starts_with(b"HTTP/1.1 5"),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
    nothing_is_left(&server);
    let grown = memory(&server).saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB");
}

#[test]
fn a_socket_that_is_closed_on_one_side_leaves_nothing_behind() {
    let server = server(&[]);
    for streamed in [true, false] {
        let mut request = stream(30);
        request["stream"] = streamed.into();
        let connection = open(server.port, "/v1/completions", &request);
        connection
            .shutdown(Shutdown::Write)
            .expect("an open socket");
        // It is served or given up, but not forgotten.
        let mut bytes = Vec::new();
        let _ = (&connection).read_to_end(&mut bytes);
        nothing_is_left(&server);
    }
    let mut half = send_raw(
        server.port,
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{",
    );
    half.shutdown(Shutdown::Write).expect("an open socket");
    let _ = half.write_all(b"x");
    let _ = half.read_to_end(&mut Vec::new());
    assert_eq!(post(server.port, "/v1/completions", &stream(2)).status, 200);
}
