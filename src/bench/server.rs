//! What the server says of itself: which API it speaks, its models, and what else a result has to be read with.

use super::api::Api;
use super::connections::Connections;
use super::target::Target;
use crate::start_error::StartError;
use http_body_util::{BodyExt, Limited};
use hyper::Method;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 4 << 20;

/// What the server told about itself; kept with the result as it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// The answer of `/v1/models`.
    pub models: Option<Value>,
    /// The answer of `/info`.
    pub info: Option<Value>,
    /// The answer of `/version`.
    pub version: Option<Value>,
}

impl ServerInfo {
    /// Asks the server.
    ///
    /// # Errors
    /// When nothing answers at all.
    pub async fn ask(target: &Target, connections: &Connections) -> Result<Self, StartError> {
        let unreachable = |problem: String| StartError::Other(format!("{target}: {problem}"));
        let models = get(connections, "/v1/models").await.map_err(unreachable)?;
        Ok(ServerInfo {
            models,
            info: get(connections, "/info").await.unwrap_or_default(),
            version: get(connections, "/version").await.unwrap_or_default(),
        })
    }

    /// The API that it can be asked by.
    pub fn api(&self) -> Option<Api> {
        match (&self.models, &self.info) {
            (Some(_), _) => Some(Api::Completions),
            (None, Some(_)) => Some(Api::Tgi),
            (None, None) => None,
        }
    }

    /// The name of its first model.
    pub fn model(&self) -> Option<&str> {
        let listed = self.models.as_ref().and_then(|m| m.pointer("/data/0/id"));
        let told = self.info.as_ref().and_then(|info| info.get("model_id"));
        listed.or(told).and_then(Value::as_str)
    }

    /// The folder of its model, where it tells one that is on this machine.
    pub fn model_folder(&self) -> Option<PathBuf> {
        let root = self.models.as_ref().and_then(|m| m.pointer("/data/0/root"));
        let folder = PathBuf::from(root.and_then(Value::as_str).or(self.model())?);
        folder.join("tokenizer.json").is_file().then_some(folder)
    }
}

/// The answer of a route; `None` when it has none in JSON.
async fn get(connections: &Connections, route: &str) -> Result<Option<Value>, String> {
    let sent = connections.send(Method::GET, route, Bytes::new());
    let sent = tokio::time::timeout(PATIENCE, sent).await;
    let sent = sent.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))?;
    let (connection, response) =
        sent.map_err(|failure| format!("{}: {}", failure.kind(), failure.detail()))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_BYTES).collect();
    let Ok(Ok(body)) = tokio::time::timeout(PATIENCE, body).await else {
        return Ok(None);
    };
    connections.give_back(connection).await;
    Ok(match status.is_success() {
        true => serde_json::from_slice(&body.to_bytes()).ok(),
        false => None,
    })
}
