//! API keys: who may use the generation routes and restart devices. Health, metrics and info stay open, as with the servers this one replaces.
//! Not here: how a refusal looks (each dialect's `error.rs`).

use super::refusal::{Kind, Refusal};
use actix_web::HttpRequest;
use actix_web::http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

/// The accepted keys; with none, everybody may ask.
#[derive(Clone, Debug, Default)]
pub struct ApiKeys(Vec<String>);

impl ApiKeys {
    /// No key is needed.
    pub fn none() -> Self {
        ApiKeys::default()
    }

    /// Reads keys from the text of a key file: one per line, blank lines and `#` comments aside.
    ///
    /// # Errors
    /// A message when the text holds no key: a file that locks nobody out is more likely a mistake than a wish.
    pub fn parse(text: &str) -> Result<Self, String> {
        let keys: Vec<String> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        if keys.is_empty() {
            return Err("it holds no key".into());
        }
        Ok(ApiKeys(keys))
    }

    /// The tenant that `request` speaks for: empty when no keys are set, else the key's place in the file.
    ///
    /// # Errors
    /// A refusal (401) without a key or with an unknown one.
    pub fn tenant(&self, request: &HttpRequest) -> Result<String, Refusal> {
        if self.0.is_empty() {
            return Ok(String::new());
        }
        let given = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let Some(given) = given.and_then(bearer) else {
            return Err(Refusal::new(
                Kind::Unauthorized,
                "Unauthorized: send the API key as `Authorization: Bearer KEY`",
            ));
        };
        match self.position(given) {
            Some(index) => Ok(format!("key-{index}")),
            None => Err(Refusal::new(
                Kind::Unauthorized,
                "Unauthorized: the API key is not known",
            )),
        }
    }

    /// Compares with every key in full, so that the time taken tells nothing about them.
    fn position(&self, given: &str) -> Option<usize> {
        let mut found = None;
        for (index, key) in self.0.iter().enumerate() {
            if bool::from(key.as_bytes().ct_eq(given.as_bytes())) {
                found = Some(index);
            }
        }
        found
    }
}

/// The token of a `Bearer` header; the scheme's case does not matter.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn tenant(keys: &ApiKeys, header: Option<&str>) -> Result<String, Refusal> {
        let mut request = TestRequest::default();
        if let Some(header) = header {
            request = request.insert_header((AUTHORIZATION, header));
        }
        keys.tenant(&request.to_http_request())
    }

    #[test]
    fn without_keys_everybody_may_ask() {
        assert_eq!(tenant(&ApiKeys::none(), None), Ok(String::new()));
    }

    #[test]
    fn only_a_whole_known_key_is_accepted() {
        let keys = ApiKeys::parse("# team\nalpha\n\n beta \n").unwrap();
        assert_eq!(tenant(&keys, Some("Bearer beta")), Ok("key-1".into()));
        assert_eq!(tenant(&keys, Some("bearer alpha")), Ok("key-0".into()));
        for wrong in [
            None,
            Some("beta"),
            Some("Bearer bet"),
            Some("Bearer "),
            Some("Basic beta"),
            Some("Bearer BETA"),
        ] {
            assert_eq!(
                tenant(&keys, wrong).unwrap_err().kind,
                Kind::Unauthorized,
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn an_empty_key_file_is_an_error() {
        assert!(ApiKeys::parse("# nothing\n").is_err());
    }
}
