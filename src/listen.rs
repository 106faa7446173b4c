//! Binds the ports, before any weight is loaded, so that a port in use is told at once.

use crate::start_error::StartError;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 2048;

/// Listens on `host:port`; port 0 takes any free one.
///
/// # Errors
/// `StartError::Address` with the address and the cause.
pub fn listen(host: &str, port: u16) -> Result<TcpListener, StartError> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let wrong = |problem: String| StartError::Address {
        address: format!("{host}:{port}"),
        problem,
    };
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| wrong(format!("unknown host: {error}")))?;
    let mut problem = "the host has no address".to_owned();
    for address in addresses {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => problem = explain(&error),
        }
    }
    Err(wrong(problem))
}

fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Connections of a predecessor that was killed must not keep the port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn explain(error: &Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => "the port is already in use".to_owned(),
        ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        ErrorKind::PermissionDenied => "no permission; ports below 1024 are privileged".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_told_with_its_address() {
        let first = listen("127.0.0.1", 0).unwrap();
        let port = first.local_addr().unwrap().port();
        let error = listen("127.0.0.1", port).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("cannot listen on 127.0.0.1:{port}: the port is already in use")
        );
    }

    #[test]
    fn a_foreign_address_is_told() {
        let error = listen("192.0.2.1", 0).unwrap_err().to_string();
        assert!(
            error.contains("192.0.2.1:0: this machine does not have that address"),
            "{error}"
        );
    }
}
