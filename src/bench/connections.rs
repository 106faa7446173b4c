//! Connections to the server: opened when needed, kept for the next request unless told otherwise. HTTP itself is hyper's work.

use super::record::Failure;
use super::target::Target;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;

/// A connection that a request can be sent on.
pub type Connection = SendRequest<Full<Bytes>>;

/// All connections to one server.
pub struct Connections {
    target: Target,
    authorization: Option<HeaderValue>,
    keep: bool,
    idle: Mutex<Vec<Connection>>,
    opened: AtomicU64,
    resent: AtomicU64,
}

impl Connections {
    /// None yet. `keep`: use a connection again for the next request.
    pub fn new(target: Target, authorization: Option<HeaderValue>, keep: bool) -> Self {
        Connections {
            target,
            authorization,
            keep,
            idle: Mutex::default(),
            opened: AtomicU64::new(0),
            resent: AtomicU64::new(0),
        }
    }

    /// Connections opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Requests that were sent again because the server had closed the kept connection they were sent on.
    pub fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    /// Sends a request and waits for the head of its answer. A kept connection that turns out to be closed is replaced, once.
    ///
    /// # Errors
    /// When there is no connection, or it breaks before the answer begins.
    pub async fn send(
        &self,
        method: Method,
        route: &str,
        body: Bytes,
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        if let Some(mut kept) = self.take_idle() {
            let request = self.request(method.clone(), route, body.clone())?;
            match kept.send_request(request).await {
                Ok(response) => return Ok((kept, response)),
                Err(_) => self.resent.fetch_add(1, Ordering::Relaxed),
            };
        }
        let mut fresh = self.open().await?;
        let response = fresh.send_request(self.request(method, route, body)?);
        let response = response.await.map_err(broken)?;
        Ok((fresh, response))
    }

    /// Takes a connection back whose answer was read to its end.
    pub async fn give_back(&self, mut connection: Connection) {
        if self.keep && connection.ready().await.is_ok() {
            self.idle().push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle();
        std::iter::from_fn(|| idle.pop()).find(|connection| !connection.is_closed())
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let unreachable = |error: std::io::Error| Failure::Connect(error.to_string());
        let address = (self.target.host.as_str(), self.target.port);
        let stream = TcpStream::connect(address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let (connection, io) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        // Its errors reach whoever waits for the answer.
        tokio::spawn(io);
        Ok(connection)
    }

    fn request(
        &self,
        method: Method,
        route: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.target.path(route))
            .header(header::HOST, self.target.authority())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        if !self.keep {
            request = request.header(header::CONNECTION, "close");
        }
        let request = request.body(Full::new(body));
        request.map_err(|error| Failure::Broken(error.to_string()))
    }
}

/// A failure of the connection with its cause, which hyper's own text leaves out.
pub fn broken(error: hyper::Error) -> Failure {
    Failure::Broken(explained(&error))
}

/// An error's text with those of its causes.
pub fn explained(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
