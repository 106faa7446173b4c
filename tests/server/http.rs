//! A plain HTTP client on a socket, so that a test sees (and may break off) exactly what is on the wire.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }
}

/// Sends bytes as they are and returns the connection.
pub fn send_raw(port: u16, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout");
    // The server may refuse a large body before it has read it all: what it says still comes back.
    let _ = stream.write_all(request);
    stream
}

fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

/// Opens a POST and returns its connection with nothing read yet.
pub fn open(port: u16, path: &str, body: &Value) -> TcpStream {
    send_raw(port, &request("POST", path, body.to_string().as_bytes()))
}

/// GET, to the end.
pub fn get(port: u16, path: &str) -> Answer {
    read_answer(send_raw(port, &request("GET", path, b"")))
}

/// POST with a JSON body, to the end.
pub fn post(port: u16, path: &str, body: &Value) -> Answer {
    read_answer(open(port, path, body))
}

/// Any method with a JSON body, to the end.
pub fn send(port: u16, method: &str, path: &str, body: &Value) -> Answer {
    let body = body.to_string();
    read_answer(send_raw(port, &request(method, path, body.as_bytes())))
}

/// POST with any body, to the end.
pub fn post_bytes(port: u16, path: &str, body: &[u8]) -> Answer {
    read_answer(send_raw(port, &request("POST", path, body)))
}

/// Reads a whole answer, chunked or not.
pub fn read_answer(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let (status, headers) = read_head(&mut reader);
    let mut bytes = Vec::new();
    let _ = reader.read_to_end(&mut bytes);
    let chunked = headers
        .iter()
        .any(|(n, v)| n.eq_ignore_ascii_case("transfer-encoding") && v == "chunked");
    let bytes = if chunked { unchunk(&bytes) } else { bytes };
    Answer {
        status,
        headers,
        body: String::from_utf8_lossy(&bytes).into_owned(),
    }
}

fn read_head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    let status = line.split(' ').nth(1).and_then(|s| s.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header line");
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => return (status, headers),
        }
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end])
            .ok()
            .and_then(|s| usize::from_str_radix(s, 16).ok());
        let Some(size) = size.filter(|s| *s > 0) else {
            break;
        };
        let rest = &bytes[end + 2..];
        whole.extend(&rest[..size.min(rest.len())]);
        bytes = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}

/// The `data:` payloads of an SSE answer.
pub fn events(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
        .body
        .split("\n\n")
        .filter_map(|frame| frame.strip_prefix("data:"))
        .map(|payload| payload.strip_prefix(' ').unwrap_or(payload).to_owned())
        .collect()
}

/// Text of choice 0 and its finish reason from an OpenAI completion stream.
pub fn completion_stream(answer: &Answer) -> (String, String) {
    let events = events(answer);
    assert_eq!(
        events.last().map(String::as_str),
        Some("[DONE]"),
        "{}",
        answer.body
    );
    let (mut text, mut finish) = (String::new(), Vec::new());
    for event in &events[..events.len() - 1] {
        let event: Value = serde_json::from_str(event).expect("a JSON event");
        for choice in event["choices"].as_array().expect("choices") {
            text.push_str(choice["text"].as_str().expect("text"));
            finish.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
    }
    assert_eq!(finish.len(), 1, "one finish reason: {finish:?}");
    (text, finish.remove(0))
}
