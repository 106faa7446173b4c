//! Streams that run side by side: each its own draw, so that a byte of another one would be noticed.

use crate::http::{completion_stream, open, read_answer};
use crate::process::Server;
use serde_json::{Value, json};
use std::net::TcpStream;

/// A request for a stream of so many tokens.
pub fn stream(seed: u64, tokens: u32) -> Value {
    json!({"prompt": "abcdefghij", "max_tokens": tokens, "seed": seed, "temperature": 1.0, "ignore_eos": true,
        "stream": true})
}

/// Begins so many.
pub fn begin(server: &Server, count: u64, tokens: u32) -> Vec<TcpStream> {
    let streams = (0..count).map(|n| open(server.port, "/v1/completions", &stream(n, tokens)));
    streams.collect()
}

/// Reads them to their ends: text and finish reason of each.
pub fn end(streams: Vec<TcpStream>) -> Vec<(String, String)> {
    let answers = streams.into_iter().map(read_answer);
    answers.map(|answer| completion_stream(&answer)).collect()
}
