//! The hub's client against a small stand-in server on this machine.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::super::sha256;
use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the stand-in serves and what it was asked.
#[derive(Default)]
struct Served {
    /// Path in the model to content.
    files: HashMap<String, Vec<u8>>,
    /// Tags that are not the content's own.
    tags: HashMap<String, String>,
    /// Downloads that end after this many bytes, once each.
    cuts: Vec<(String, usize)>,
    /// First line and range of each request.
    requests: Vec<String>,
    tokens: Vec<String>,
}

/// A hub that has the model `org/name` only.
struct StandIn {
    served: Arc<Mutex<Served>>,
    endpoint: String,
}

impl StandIn {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let served = Arc::new(Mutex::new(Served::default()));
        served.lock().unwrap().files = files
            .iter()
            .map(|(name, content)| (name.to_string(), content.to_vec()))
            .collect();
        let shared = served.clone();
        thread_per_connection(listener, shared);
        Self { served, endpoint }
    }

    fn places(&self, folder: &Path) -> Places {
        Places {
            cache: folder.join("cache"),
            hub_endpoint: self.endpoint.clone(),
            hub_cache: folder.join("hub"),
            hub_token: Some("secret".to_owned()),
            pip: vec![],
        }
    }

    fn requests(&self, part: &str) -> Vec<String> {
        let served = self.served.lock().unwrap();
        served
            .requests
            .iter()
            .filter(|r| r.contains(part))
            .cloned()
            .collect()
    }
}

fn thread_per_connection(listener: TcpListener, served: Arc<Mutex<Served>>) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let served = served.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &served));
        }
    });
}

/// Answers one request and closes the connection.
fn answer(mut stream: TcpStream, served: &Mutex<Served>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(request)) = lines.next() else {
        return;
    };
    let headers: HashMap<String, String> = lines
        .map_while(|line| line.ok().filter(|l| !l.is_empty()))
        .filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_lowercase(), value.to_owned()))
        })
        .collect();
    let mut served = served.lock().unwrap();
    let range = headers.get("range").cloned().unwrap_or_default();
    served.requests.push(format!("{request} {range}"));
    served.tokens.extend(headers.get("authorization").cloned());
    let path = request.split(' ').nth(1).unwrap().to_owned();
    if path == "/api/models/org/name/revision/main" {
        let siblings: Vec<_> = served
            .files
            .keys()
            .map(|name| serde_json::json!({"rfilename": name}))
            .collect();
        let body = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
        return send(&mut stream, "200 OK", "", body.as_bytes(), body.len());
    }
    let name = path.strip_prefix(&format!("/org/name/resolve/{COMMIT}/"));
    match name.and_then(|name| Some((name, served.files.get(name)?.clone()))) {
        Some((name, content)) => send_file(&mut stream, &mut served, name, &content, &range),
        None => send(&mut stream, "404 Not Found", "", b"", 0),
    }
}

fn send_file(stream: &mut TcpStream, served: &mut Served, name: &str, content: &[u8], range: &str) {
    let (from, to) = range
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let from: usize = from.parse().unwrap();
    let to = to.parse().map_or(content.len(), |last: usize| last + 1);
    if from >= content.len() {
        return send(stream, "416 Range Not Satisfiable", "", b"", 0);
    }
    let part = &content[from..to];
    let is_download = range.ends_with('-');
    let cut = served
        .cuts
        .iter()
        .position(|(n, _)| is_download && n == name);
    let sent = cut.map_or(part.len(), |i| served.cuts.remove(i).1);
    let tag = served
        .tags
        .get(name)
        .cloned()
        .unwrap_or_else(|| format!("tag-of-{name}"));
    let headers = format!(
        "ETag: \"{tag}\"\r\nX-Repo-Commit: {COMMIT}\r\nContent-Range: bytes {from}-{}/{}\r\n",
        to - 1,
        content.len()
    );
    send(
        stream,
        "206 Partial Content",
        &headers,
        &part[..sent],
        part.len(),
    );
}

fn send(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8], length: usize) {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

fn model() -> Model {
    Model::parse("org/name").unwrap()
}

/// Content that is long enough to be cut.
fn weights() -> Vec<u8> {
    (0..100_000_u32).flat_map(u32::to_le_bytes).collect()
}

#[test]
fn names_of_models_are_told_from_paths() {
    let parse = |argument| Model::parse(argument).map(|m| (m.id, m.revision));
    let found = |id: &str, revision: &str| Some((id.to_owned(), revision.to_owned()));
    assert_eq!(parse("org/na.me-1_b"), found("org/na.me-1_b", "main"));
    assert_eq!(parse("org/name@v1.0"), found("org/name", "v1.0"));
    for path in [
        "name",
        "/name",
        "./name",
        "../name",
        "a/b/c",
        "org/x.gguf",
        "org/na me",
        "org/",
        "org/n@",
    ] {
        assert_eq!(parse(path), None, "{path}");
    }
}

#[test]
fn only_the_needed_files_are_fetched_and_each_once() {
    let hub = StandIn::new(&[
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("chat_template.jinja", b"hi"),
        ("additional_chat_templates/tool_use.jinja", b"tools"),
        ("additional_chat_templates/../evil.jinja", b"evil"),
        ("model.safetensors", b"weights"),
        ("pytorch_model.bin", b"pickled"),
        ("README.md", b"text"),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let places = hub.places(folder.path());
    let path = fetch(&model(), &places).unwrap();
    assert_eq!(
        fs::read(path.join("model.safetensors")).unwrap(),
        b"weights"
    );
    assert_eq!(
        fs::read(path.join("additional_chat_templates/tool_use.jinja")).unwrap(),
        b"tools"
    );
    for other in ["README.md", "pytorch_model.bin", "evil.jinja"] {
        assert!(hub.requests(other).is_empty(), "{other}");
    }
    let asked = hub.requests("").len();
    assert_eq!(fetch(&model(), &places).unwrap(), path);
    assert_eq!(hub.requests("").len(), asked + 1, "the list only");
    assert!(
        hub.served
            .lock()
            .unwrap()
            .tokens
            .iter()
            .all(|t| t == "Bearer secret")
    );
}

#[test]
fn shards_are_those_of_the_index() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}"#;
    let files: [(&str, &[u8]); 5] = [
        ("config.json", b"{}"),
        (INDEX, index),
        ("model-1.safetensors", b"1"),
        ("model-2.safetensors", b"2"),
        ("consolidated.safetensors", b"all"),
    ];
    let hub = StandIn::new(&files);
    let folder = tempfile::tempdir().unwrap();
    let path = fetch(&model(), &hub.places(folder.path())).unwrap();
    assert!(path.join("model-2.safetensors").exists());
    assert!(hub.requests("consolidated").is_empty());

    let evil = br#"{"weight_map": {"a": "../../evil"}}"#;
    assert!(shards(evil).is_err());
}

#[test]
fn a_download_that_is_cut_off_goes_on_where_it_stopped() {
    let content = weights();
    let hub = StandIn::new(&[("config.json", b"{}"), (SINGLE, &content)]);
    hub.served.lock().unwrap().cuts = vec![(SINGLE.to_owned(), 150_000)];
    let folder = tempfile::tempdir().unwrap();
    let path = fetch(&model(), &hub.places(folder.path())).unwrap();
    assert!(fs::read(path.join(SINGLE)).unwrap() == content);
    let downloads: Vec<String> = hub.requests(SINGLE);
    let resumed = downloads.iter().any(|r| r.ends_with("bytes=150000-"));
    assert!(resumed, "{downloads:?}");
}

#[test]
fn a_part_that_is_already_whole_or_wrong_does_not_stop_the_download() {
    let content = weights();
    let hub = StandIn::new(&[("config.json", b"{}"), (SINGLE, &content)]);
    let (_, sum) = sha256::copy(&mut content.as_slice(), &mut std::io::sink()).unwrap();
    hub.served
        .lock()
        .unwrap()
        .tags
        .insert(SINGLE.to_owned(), sum.clone());
    for part in [content.len(), content.len() + 5, 1000] {
        let folder = tempfile::tempdir().unwrap();
        let places = hub.places(folder.path());
        let blobs = places.hub_cache.join("models--org--name/blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(format!("{sum}.part")), vec![0; part]).unwrap();
        let path = fetch(&model(), &places).unwrap();
        assert!(fs::read(path.join(SINGLE)).unwrap() == content, "{part}");
    }
}

#[test]
fn a_model_that_is_not_there_is_named() {
    let hub = StandIn::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let missing = Model::parse("org/missing").unwrap();
    let error = fetch(&missing, &hub.places(folder.path())).unwrap_err();
    assert!(matches!(error, SourceError::NotOnHub { .. }), "{error}");
    assert!(error.to_string().contains("org/missing"), "{error}");
}

#[test]
fn a_model_without_safetensors_is_refused_with_a_hint() {
    let hub = StandIn::new(&[("config.json", b"{}"), ("x.Q4_0.gguf", b"GGUF")]);
    let folder = tempfile::tempdir().unwrap();
    let error = fetch(&model(), &hub.places(folder.path()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("safetensors") && error.contains("x.Q4_0.gguf"),
        "{error}"
    );
}

#[test]
fn without_the_hub_an_earlier_fetch_serves() {
    let hub = StandIn::new(&[("config.json", b"{}"), (SINGLE, b"weights")]);
    let folder = tempfile::tempdir().unwrap();
    let mut places = hub.places(folder.path());
    let path = fetch(&model(), &places).unwrap();
    places.hub_endpoint = "http://127.0.0.1:1".to_owned();
    assert_eq!(fetch(&model(), &places).unwrap(), path);
    fs::remove_file(path.join(SINGLE)).unwrap();
    assert!(matches!(
        fetch(&model(), &places),
        Err(SourceError::Download { .. })
    ));
}
