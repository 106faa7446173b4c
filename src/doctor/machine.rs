//! Shared memory, ports, proxies: what the operating system gives.

use super::Finding;
use crate::config::{Config, ServerConfig};
use crate::listen::listen;
use crate::serve;
use std::path::Path;

/// Shared memory below this is what containers have unless told otherwise.
const SMALL_SHM: u64 = 1 << 30;

pub fn examine(config: &Config, findings: &mut Vec<Finding>) {
    findings.push(shared_memory(space(Path::new("/dev/shm"))));
    let server = &config.server_config;
    findings.extend(ports(server));
    findings.extend(serve::unusable_files(config).into_iter().map(|error| {
        let remedy = "name a file that can be read and holds what its option asks for";
        Finding::bad("files", error.to_string(), remedy)
    }));
    findings.extend(proxies(|name| std::env::var(name).ok()));
}

/// "1.5 GiB".
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// Bytes of a file system that are free for us, and all of them.
pub fn space(path: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some((
        found.f_bavail.saturating_mul(found.f_frsize),
        found.f_blocks.saturating_mul(found.f_frsize),
    ))
}

fn shared_memory(found: Option<(u64, u64)>) -> Finding {
    let about = "shared memory";
    let remedy = "start the container with --shm-size 1g or more, or mount /dev/shm larger";
    match found {
        None => Finding::doubtful(about, "there is no /dev/shm", remedy),
        Some((_, total)) if total < SMALL_SHM => {
            Finding::doubtful(about, format!("/dev/shm has {}", gib(total)), remedy)
        }
        Some((free, total)) => Finding::good(
            about,
            format!("{} of {} free in /dev/shm", gib(free), gib(total)),
        ),
    }
}

/// Each is held until all were tried, so that two on the same one are noticed.
fn ports(server: &ServerConfig) -> Vec<Finding> {
    let host = &server.management_host;
    let wanted = [
        (&server.host, Some(server.port)),
        (host, server.management_port),
        (host, server.metrics_port),
    ];
    let wanted = wanted
        .into_iter()
        .filter_map(|(host, port)| port.map(|port| (host, port)))
        .filter(|(_, port)| *port != 0);
    let (mut findings, mut held) = (Vec::new(), Vec::new());
    for (host, port) in wanted {
        findings.push(match listen(host, port) {
            Ok(listener) => {
                held.push(listener);
                Finding::good("ports", format!("{host}:{port} is free"))
            }
            Err(error) => Finding::bad(
                "ports",
                error.to_string(),
                format!(
                    "choose another address with --host, --port, --management-host, --management-port or --metrics-port, \
                     or end who has it (ss -ltnp 'sport = :{port}')"
                ),
            ),
        });
    }
    findings
}

fn proxies(variable: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let about = "proxies";
    let either = |name: &str| variable(name).or_else(|| variable(&name.to_uppercase()));
    let set: Vec<&str> = ["http_proxy", "https_proxy", "all_proxy"]
        .into_iter()
        .filter(|name| either(name).is_some_and(|value| !value.is_empty()))
        .collect();
    if set.is_empty() {
        return vec![Finding::good(about, "none is set")];
    }
    let spared = either("no_proxy").unwrap_or_default();
    let spares = |host: &str| spared.split(',').any(|entry| entry.trim() == host);
    match spares("localhost") || spares("127.0.0.1") || spares("*") {
        true => vec![Finding::good(
            about,
            format!("{} with exceptions for this machine", set.join(", ")),
        )],
        false => vec![Finding::doubtful(
            about,
            format!(
                "{} without an exception for this machine: clients here ask the proxy for the server",
                set.join(", ")
            ),
            "export no_proxy=127.0.0.1,localhost in the client's shell, or unset the proxy there",
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn small_shared_memory_is_doubtful() {
        assert_eq!(
            shared_memory(Some((1 << 26, 1 << 26))).level,
            Level::Doubtful
        );
        assert_eq!(shared_memory(Some((1 << 33, 1 << 33))).level, Level::Good);
        assert_eq!(shared_memory(None).level, Level::Doubtful);
    }

    #[test]
    fn a_proxy_must_spare_this_machine() {
        let level = |pairs: &[(&str, &str)]| {
            let found = proxies(|name| {
                let pair = pairs.iter().find(|(key, _)| *key == name);
                pair.map(|(_, value)| (*value).to_owned())
            });
            found[0].level
        };
        assert_eq!(level(&[]), Level::Good);
        assert_eq!(level(&[("HTTP_PROXY", "http://p:1")]), Level::Doubtful);
        let spared = [("http_proxy", "http://p:1"), ("no_proxy", "a, localhost")];
        assert_eq!(level(&spared), Level::Good);
    }

    fn defaults() -> Config {
        let resolved = crate::config::resolve(crate::config::Inputs::default());
        resolved.expect("the defaults are good").config
    }

    #[test]
    fn a_port_in_use_or_wanted_twice_is_bad() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("its address").port();
        let mut server = defaults().server_config;
        (server.port, server.management_port) = (port, None);
        let findings = ports(&server);
        assert_eq!(findings[0].level, Level::Bad);
        assert!(findings[0].remedy.contains(&port.to_string()));
        drop(taken);
        server.management_port = Some(port);
        let levels: Vec<Level> = ports(&server).iter().map(|f| f.level).collect();
        assert_eq!(levels, [Level::Good, Level::Bad]);
    }

    #[test]
    fn files_that_serving_would_refuse_are_found() {
        let mut config = defaults();
        let server = &mut config.server_config;
        let none = || Some("/no/such/file".into());
        (server.api_key_file, server.tenants_file) = (none(), none());
        (server.tls_cert, server.tls_key) = (none(), none());
        let problems = serve::unusable_files(&config);
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        for option in ["api_key_file", "tenants_file", "tls_cert"] {
            assert!(told.iter().any(|text| text.contains(option)), "{told:?}");
        }
    }
}
