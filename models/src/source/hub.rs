//! Models of the Hugging Face hub, kept in the hub's own cache so that its other clients find them too.
//! Only the files that are needed are fetched; a download that was cut off goes on where it stopped.

mod transfer;

use std::fs;
use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use super::{Places, SourceError};
use transfer::{Failure, Transfer, judge};

/// Files that are taken if they are there.
const SMALL_FILES: [&str; 7] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
];
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// A model on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    /// `org/name`.
    pub id: String,
    /// Branch, tag or commit.
    pub revision: String,
}

impl Model {
    /// Reads `org/name` or `org/name@revision`.
    pub fn parse(argument: &str) -> Option<Self> {
        let (id, revision) = argument.split_once('@').unwrap_or((argument, "main"));
        let (org, name) = id.split_once('/')?;
        let is_plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        let is_file = name.ends_with(".gguf") || name.ends_with(".safetensors");
        let is_model = is_plain(org) && is_plain(name) && is_plain(revision) && !is_file;
        is_model.then(|| Self {
            id: id.to_owned(),
            revision: revision.to_owned(),
        })
    }
}

/// The token that the hub's own login stores.
pub(super) fn stored_token(hub_home: &Path) -> Option<String> {
    let token = fs::read_to_string(hub_home.join("token")).ok()?;
    Some(token.trim().to_owned()).filter(|t| !t.is_empty())
}

/// Fetches what is missing of a model; returns its folder in the cache.
pub(super) fn fetch(model: &Model, places: &Places) -> Result<PathBuf, SourceError> {
    let cache = Cache::new(places.hub_cache.clone());
    let named = repo(model, &model.revision);
    let hub = Hub::new(model, places, &cache)?;
    let info = match hub.api.repo(named.clone()).info() {
        Ok(info) => info,
        Err(error) => {
            let error = hub.refused(&error);
            let Some(folder) = whole_snapshot(&cache.repo(named)) else {
                return Err(error);
            };
            tracing::warn!(%error, folder = %folder.display(), "using the model as it was fetched before");
            return Ok(folder);
        }
    };
    // All files from one commit, whatever is pushed meanwhile.
    let pinned = repo(model, &info.sha);
    let transfer = Transfer::new(&hub.api, &cache, &pinned);
    let names: Vec<&str> = info.siblings.iter().map(|s| s.rfilename.as_str()).collect();
    hub.files(&names, &transfer)?;
    let unwritable = |source| SourceError::Write {
        file: places.hub_cache.clone(),
        source,
    };
    cache
        .repo(named)
        .create_ref(&info.sha)
        .map_err(unwritable)?;
    Ok(cache.repo(pinned).pointer_path(&info.sha))
}

fn repo(model: &Model, revision: &str) -> Repo {
    Repo::with_revision(model.id.clone(), RepoType::Model, revision.to_owned())
}

/// The folder of an earlier fetch, if all that was to be fetched is there.
fn whole_snapshot(cached: &CacheRepo) -> Option<PathBuf> {
    let folder = cached.get(SMALL_FILES[0])?.parent()?.to_path_buf();
    let weights = match fs::read(folder.join(INDEX)) {
        Ok(index) => shards(&index).ok()?,
        Err(_) => vec![SINGLE.to_owned()],
    };
    let whole = weights.iter().all(|name| folder.join(name).exists());
    whole.then_some(folder)
}

/// The hub and the model that is asked of it.
struct Hub<'a> {
    model: &'a Model,
    endpoint: String,
    api: Api,
}

impl<'a> Hub<'a> {
    fn new(model: &'a Model, places: &Places, cache: &Cache) -> Result<Self, SourceError> {
        let endpoint = places.hub_endpoint.trim_end_matches('/').to_owned();
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(endpoint.clone())
            .with_token(places.hub_token.clone())
            .with_progress(false)
            .with_user_agent("ropeteam", env!("CARGO_PKG_VERSION"))
            .build();
        match api {
            Ok(api) => Ok(Self {
                model,
                endpoint,
                api,
            }),
            Err(error) => Err(SourceError::Download {
                endpoint,
                model: model.id.clone(),
                file: "anything".to_owned(),
                reason: error.to_string(),
            }),
        }
    }

    /// Fetches all files that are needed, of those that the hub has.
    fn files(&self, names: &[&str], transfer: &Transfer<'_>) -> Result<(), SourceError> {
        if !names.contains(&SMALL_FILES[0]) {
            return Err(self.unsuitable("config.json", names));
        }
        let wanted = |name: &str| SMALL_FILES.contains(&name) || is_extra_template(name);
        for name in names.iter().filter(|name| wanted(name)) {
            self.file(name, transfer)?;
        }
        let weights = if names.contains(&INDEX) {
            let index = self.file(INDEX, transfer)?;
            let bytes = fs::read(&index).map_err(|e| self.failed(INDEX, &e))?;
            shards(&bytes).map_err(|reason| self.failed(INDEX, &reason))?
        } else if names.contains(&SINGLE) {
            vec![SINGLE.to_owned()]
        } else {
            return Err(self.unsuitable("weights in safetensors", names));
        };
        for name in weights {
            self.file(&name, transfer)?;
        }
        Ok(())
    }

    fn file(&self, name: &str, transfer: &Transfer<'_>) -> Result<PathBuf, SourceError> {
        transfer
            .file(name)
            .map_err(|reason| self.failed(name, &reason))
    }

    fn refused(&self, error: &ApiError) -> SourceError {
        match judge(error) {
            Failure::Final(status) => SourceError::NotOnHub {
                endpoint: self.endpoint.clone(),
                model: self.model.id.clone(),
                status,
            },
            Failure::Passing(reason) => self.failed("the list of files", &reason),
        }
    }

    fn failed(&self, file: &str, reason: &dyn std::fmt::Display) -> SourceError {
        SourceError::Download {
            endpoint: self.endpoint.clone(),
            model: self.model.id.clone(),
            file: file.to_owned(),
            reason: reason.to_string(),
        }
    }

    fn unsuitable(&self, missing: &'static str, names: &[&str]) -> SourceError {
        let hint = match names.iter().find(|name| name.ends_with(".gguf")) {
            Some(file) => format!(
                "; it holds .gguf files: download one ({}/{}/resolve/main/{file}) and give its path",
                self.endpoint, self.model.id
            ),
            None => String::new(),
        };
        SourceError::Unsuitable {
            model: self.model.id.clone(),
            missing,
            hint,
        }
    }
}

fn is_extra_template(name: &str) -> bool {
    name.strip_prefix("additional_chat_templates/")
        .is_some_and(|rest| rest.ends_with(".jinja") && is_plain_file(rest))
}

/// The weight files that an index names, each once.
fn shards(index: &[u8]) -> Result<Vec<String>, String> {
    let index: serde_json::Value = serde_json::from_slice(index).map_err(|e| e.to_string())?;
    let map = index["weight_map"]
        .as_object()
        .ok_or("it has no weight_map")?;
    let mut names: Vec<String> = Vec::new();
    for name in map.values() {
        match name.as_str() {
            Some(name) if is_plain_file(name) => {
                if !names.iter().any(|n| n == name) {
                    names.push(name.to_owned());
                }
            }
            _ => return Err(format!("it names {name}, which is no file beside it")),
        }
    }
    Ok(names)
}

/// A file name that leads nowhere else.
fn is_plain_file(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

#[cfg(test)]
mod tests;
