//! How many events per second can the client of `ropeteam bench` take on one core? It must be more than any server sends.
//!
//! `cargo bench -p ropeteam --bench client`: a second process answers every request with a stream of events shaped like a server's, either
//! as fast as it can (several events in a read: reading the events bounds) or one write per event, over all connections in turn (one read
//! per event: the kernel's sockets bound). The report's output/s and its share of a core tell.

use ropeteam::bench::api::Task;
use ropeteam::bench::dataset::{DatasetKind, DatasetPlan, IdRange, PromptAs};
use ropeteam::bench::lengths::Lengths;
use ropeteam::bench::load::Pace;
use ropeteam::bench::plan::Plan;
use ropeteam::bench::{Outputs, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Streams at once.
const STREAMS: usize = 64;
/// Events of a stream.
const EVENTS: u32 = 20_000;
/// An event as vLLM and Ropeteam write them.
const EVENT: &str = concat!(
    r#"data: {"id":"cmpl-f5f49cf79fb8d6f6a68bcb6003827317","object":"text_completion","created":1796073819,"#,
    r#""model":"SmolLM2-135M-Instruct","choices":[{"index":0,"text":" token","logprobs":null,"finish_reason":null,"#,
    r#""stop_reason":null}],"system_fingerprint":"ropeteam-0.1.0"}"#,
    "\n\n"
);
const LAST: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":20000}}\n\ndata: [DONE]\n\n";

fn main() {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("serve-fast") => serve(1024),
        Some("serve-singly") => serve(1),
        _ => {
            for mode in ["serve-fast", "serve-singly"] {
                println!("-- {mode}");
                measure(mode);
            }
        }
    }
}

fn measure(mode: &str) {
    let program = std::env::current_exe().expect("this program");
    let mut server = Command::new(program)
        .arg(mode)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process");
    let mut url = String::new();
    let out = server.stdout.take().expect("its output");
    BufReader::new(out)
        .read_line(&mut url)
        .expect("its address");
    let plan = Plan {
        target: url.trim().parse().expect("a URL"),
        against: None,
        rounds: 1,
        api: None,
        task: Task::Stream,
        model: None,
        tokenizer: None,
        dataset: DatasetPlan {
            kind: DatasetKind::Random,
            path: None,
            requests: Some(STREAMS),
            input_len: Lengths::Fixed(8),
            shared_prefix: 0,
            prompt_as: PromptAs::Ids,
            ids: IdRange::default(),
            output_len: Some(Lengths::Fixed(EVENTS)),
            max_output_len: None,
            seed: 1,
        },
        prompt_as: None,
        pace: Pace::Closed {
            concurrency: STREAMS,
        },
        warm_up: 0,
        temperature: 0.0,
        ignore_eos: None,
        api_key: None,
        timeout: Duration::from_secs(60),
        keep_alive: false,
    };
    let finished = run(&plan, "cargo bench --bench client", Outputs::default());
    println!("{}", finished.expect("a result").text);
    let _ = server.kill();
    let _ = server.wait();
}

/// Answers questions about itself, then waits for all streams and writes to them in turn, `at_once` events a write.
fn serve(at_once: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("http://{}", listener.local_addr().expect("its address"));
    let mut streams = Vec::new();
    while streams.len() < STREAMS {
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        streams.extend(opened(stream));
    }
    let chunk = format!("{:x}\r\n{EVENT}\r\n", EVENT.len()).repeat(at_once);
    let mut left = EVENTS as usize;
    while left > 0 {
        let events = left.min(at_once);
        let bytes = &chunk.as_bytes()[..chunk.len() / at_once * events];
        for stream in &mut streams {
            stream.write_all(bytes).expect("a client that reads");
        }
        left -= events;
    }
    for stream in &mut streams {
        let end = format!("{:x}\r\n{LAST}\r\n0\r\n\r\n", LAST.len());
        stream
            .write_all(end.as_bytes())
            .expect("a client that reads");
    }
    std::thread::sleep(Duration::from_secs(600));
}

/// Reads a request; the stream if it is to be answered by one, with its head written.
fn opened(mut stream: TcpStream) -> Option<TcpStream> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut line, mut length, mut post) = (String::new(), 0, false);
    while reader.read_line(&mut line).ok()? > 2 {
        post |= line.starts_with("POST");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    if !post {
        let body = r#"{"data":[{"id":"m"}]}"#;
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
        write!(stream, "{head}: {}\r\n\r\n{body}", body.len()).ok()?;
        return None;
    }
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).ok()?;
    Some(stream)
}
