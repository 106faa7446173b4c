//! API keys: who may use the generation routes. Health, metrics and info stay open, as with the servers this one replaces.
//! Not here: how a refusal looks (each dialect's `error.rs`).

use super::refusal::{Kind, Refusal};
use actix_web::HttpRequest;
use actix_web::http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

/// By which inference gateways name the tenant.
const FAIRNESS_ID: &str = "x-gateway-inference-fairness-id";
/// In place of a tenant's name: the holder of the key, such as a gateway, names it in the header.
const NAMED_BY_HEADER: &str = "*";
/// Longest name taken from a header.
const NAME_MAX: usize = 128;

/// The accepted keys; with none, everybody may ask.
#[derive(Clone, Debug, Default)]
pub struct ApiKeys(Vec<Key>);

#[derive(Clone)]
struct Key {
    secret: String,
    tenant: String,
}

/// A secret never reaches a log.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.tenant)
    }
}

impl ApiKeys {
    /// No key is needed.
    pub fn none() -> Self {
        ApiKeys::default()
    }

    /// Reads keys from the text of a key file: one per line, maybe with its tenant's name behind it; blank lines and `#` comments
    /// aside. A key without a name is the tenant `key-N`, N its place among the keys.
    ///
    /// # Errors
    /// A message when the text holds no key: a file that locks nobody out is more likely a mistake than a wish. Also when a line holds
    /// more than a key and a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys = Vec::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let (secret, tenant) = (words.next().unwrap_or_default(), words.next());
            if words.next().is_some() {
                return Err(format!("line {number}: expected KEY or KEY TENANT"));
            }
            keys.push(Key {
                secret: secret.to_owned(),
                tenant: tenant.map_or_else(|| format!("key-{}", keys.len()), str::to_owned),
            });
        }
        match keys.is_empty() {
            true => Err("it holds no key".into()),
            false => Ok(ApiKeys(keys)),
        }
    }

    /// Whether no key is needed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tenant that `request` speaks for: its key's, and without keys whom the fairness header names.
    ///
    /// # Errors
    /// A refusal (401) without a key or with an unknown one, 400 for a header that is no name.
    pub fn tenant(&self, request: &HttpRequest) -> Result<String, Refusal> {
        if self.0.is_empty() {
            return named(request);
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
        match self.position(given).map(|index| &self.0[index]) {
            Some(key) if key.tenant == NAMED_BY_HEADER => named(request),
            Some(key) => Ok(key.tenant.clone()),
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
            if bool::from(key.secret.as_bytes().ct_eq(given.as_bytes())) {
                found = Some(index);
            }
        }
        found
    }
}

/// The tenant that the fairness header names; without it the common one.
fn named(request: &HttpRequest) -> Result<String, Refusal> {
    let Some(value) = request.headers().get(FAIRNESS_ID) else {
        return Ok(String::new());
    };
    let name = value.to_str().unwrap_or_default();
    let visible = name.bytes().all(|byte| byte.is_ascii_graphic());
    if !visible || name.is_empty() || name.len() > NAME_MAX {
        let message = format!("{FAIRNESS_ID} must be 1 to {NAME_MAX} visible ASCII characters");
        return Err(Refusal::invalid(FAIRNESS_ID, message));
    }
    Ok(name.to_owned())
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
    fn tenants_are_named_in_the_file_or_by_the_gateway() {
        let keys = ApiKeys::parse("alpha team-a\nbeta\ngate *\n").unwrap();
        let tenant = |key: &str, named: Option<&'static str>| {
            let mut request = TestRequest::default();
            if !key.is_empty() {
                request = request.insert_header((AUTHORIZATION, format!("Bearer {key}")));
            }
            if let Some(name) = named {
                request = request.insert_header((FAIRNESS_ID, name));
            }
            let keys = if key.is_empty() {
                &ApiKeys::none()
            } else {
                &keys
            };
            keys.tenant(&request.to_http_request())
        };
        assert_eq!(tenant("alpha", Some("other")), Ok("team-a".into()));
        assert_eq!(tenant("beta", None), Ok("key-1".into()));
        assert_eq!(tenant("gate", Some("other")), Ok("other".into()));
        assert_eq!(tenant("gate", None), Ok(String::new()));
        assert_eq!(tenant("", Some("other")), Ok("other".into()));
        assert_eq!(tenant("", Some("a b")).unwrap_err().kind, Kind::Invalid);
        assert!(ApiKeys::parse("alpha team a").is_err());
        assert!(!format!("{keys:?}").contains("alpha"), "{keys:?}");
    }

    #[test]
    fn an_empty_key_file_is_an_error() {
        assert!(ApiKeys::parse("# nothing\n").is_err());
    }
}
