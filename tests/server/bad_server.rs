//! A server that behaves badly, as scripted: to see that a load tool tells failures apart.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What every POST gets.
#[derive(Clone, Copy, Debug)]
pub enum Behaviour {
    /// These bytes, as they are; then the connection is closed.
    Says(&'static str),
    /// An SSE stream of this body, in one chunk, ended as it should be. The connection is closed, which nobody was told.
    Streams(&'static str),
    /// The beginning of a stream, then the connection breaks.
    BreaksAfter(&'static str),
    /// Nothing, for ever.
    Hangs,
    /// Nobody listens any more.
    IsGone,
}

/// Questions about itself that the tool asks before a run.
const QUESTIONS: usize = 3;

/// Starts it; gives its port. It ends with the test process.
pub fn start(behaviour: Behaviour) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    let answered = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if matches!(behaviour, Behaviour::IsGone) {
                answer(stream, behaviour);
                if answered.fetch_add(1, Ordering::SeqCst) + 1 == QUESTIONS {
                    return;
                }
            } else {
                std::thread::spawn(move || answer(stream, behaviour));
            }
        }
    });
    port
}

fn answer(mut stream: TcpStream, behaviour: Behaviour) {
    let Some(method) = read_request(&stream) else {
        return;
    };
    if method == "GET" {
        let body = r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
        let _ = write!(
            stream,
            "{head}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        return;
    }
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let _ = match behaviour {
        Behaviour::Says(bytes) => stream.write_all(bytes.as_bytes()),
        Behaviour::Streams(body) => write!(stream, "{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        Behaviour::BreaksAfter(body) => write!(stream, "{head}{:x}\r\n{body}\r\n", body.len()),
        Behaviour::Hangs => {
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        Behaviour::IsGone => Ok(()),
    };
    let _ = stream.shutdown(Shutdown::Both);
}

/// Reads a request to its end; its method.
fn read_request(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (mut method, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        method = method.or_else(|| Some(line.split(' ').next()?.to_owned()));
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    method
}
