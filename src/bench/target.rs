//! The server's address: where to connect, and what stands before each route.

use std::str::FromStr;

/// A server, by URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path before every route; empty or beginning with a slash.
    prefix: String,
}

impl Target {
    /// The value of the `Host` header.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The path of a route.
    pub fn path(&self, route: &str) -> String {
        format!("{}{route}", self.prefix)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.prefix)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let wrong = |problem: &str| format!("{word:?}: {problem}");
        if word.starts_with("https://") {
            return Err(wrong(
                "https is not built in; measure the server behind the proxy by http",
            ));
        }
        let with_scheme = match word.contains("://") {
            true => word.to_owned(),
            false => format!("http://{word}"),
        };
        let uri: hyper::Uri = with_scheme
            .parse()
            .map_err(|_| wrong("this is no URL like http://127.0.0.1:1025"))?;
        if uri.scheme_str() != Some("http") || uri.query().is_some() {
            return Err(wrong("this is no URL like http://127.0.0.1:1025"));
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("a host is missing"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(wrong("names and passwords are not sent; use --api-key"));
        }
        let port = match authority.strip_prefix(host).unwrap_or_default() {
            "" => 80,
            port => port
                .strip_prefix(':')
                .and_then(|port| port.parse().ok())
                .filter(|&port| port > 0)
                .ok_or_else(|| wrong("the port is no number up to 65535"))?,
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        // What clients of OpenAI's API are given as the base ends in /v1, which our routes begin with.
        let path = uri.path().trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        Ok(Target { host, port, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_people_write_them() {
        for (word, shown, path) in [
            (
                "http://127.0.0.1:1025",
                "http://127.0.0.1:1025",
                "/v1/models",
            ),
            ("localhost:8080/", "http://localhost:8080", "/v1/models"),
            ("http://h/v1", "http://h:80", "/v1/models"),
            ("http://h:9/a/v1/", "http://h:9/a", "/a/v1/models"),
            ("http://[::1]:5", "http://[::1]:5", "/v1/models"),
        ] {
            let target: Target = word.parse().unwrap();
            assert_eq!(
                (target.to_string(), target.path("/v1/models")),
                (shown.into(), path.into())
            );
        }
        for word in [
            "https://h",
            "ftp://h",
            "",
            "http://",
            "http://h?x=1",
            "http://h:99999",
            "http://h:0",
            "h:abc",
            "http://[::1]:65536",
            "http://name:word@h",
        ] {
            assert!(word.parse::<Target>().is_err(), "{word}");
        }
    }
}
