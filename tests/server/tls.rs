//! The ports over TLS, with certificates made on the spot.

use crate::process::{free_port, ropeteam, tiny};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who signs all certificates of a test, and where the files are.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
struct Identity {
    cert: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("a file");
        Authority { folder, issuer }
    }

    fn sign(&self, usage: ExtendedKeyUsagePurpose) -> (Identity, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        let pem = cert.pem();
        let cert = cert.der().clone();
        (Identity { cert, key }, pem)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Files of a server's certificate and key.
    fn server(&self) -> (PathBuf, PathBuf) {
        let (identity, pem) = self.sign(ExtendedKeyUsagePurpose::ServerAuth);
        let (cert, key) = (self.path("server.pem"), self.path("server.key"));
        std::fs::write(&cert, pem).expect("a file");
        std::fs::write(&key, identity.key.serialize_pem()).expect("a file");
        (cert, key)
    }

    fn client(
        &self,
        identity: Option<Identity>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { cert, key }) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
                builder
                    .with_client_auth_cert(vec![cert], key)
                    .expect("a client's certificate")
            }
        })
    }
}

const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// Asks over TLS; returns all that came back.
fn ask(port: u16, client: &Arc<ClientConfig>, request: &str) -> std::io::Result<String> {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(client.clone(), name).expect("a connection");
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Ok(_) => Ok(answer),
        // The server may close without TLS' own goodbye.
        Err(_) if answer.contains("\r\n\r\n") => Ok(answer),
        Err(error) => Err(error),
    }
}

fn health(port: u16, client: &Arc<ClientConfig>) -> std::io::Result<String> {
    let request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    ask(port, client, request)
}

struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server and waits until `client` is served.
fn serve(port: u16, flags: &[(&str, &Path)], client: &Arc<ClientConfig>) -> Served {
    let mut command = ropeteam();
    command
        .args(["serve", "--port", &port.to_string(), "--model"])
        .arg(tiny("llama"))
        .stderr(Stdio::null());
    for (flag, path) in flags {
        command.arg(flag).arg(path);
    }
    let served = Served(command.spawn().expect("the server starts"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !health(port, client).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        assert!(Instant::now() < deadline, "the server did not become ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    served
}

#[test]
fn requests_are_served_over_tls_and_not_without() {
    let authority = Authority::new();
    let (cert, key) = authority.server();
    let port = free_port();
    let client = authority.client(None, BOTH);
    let flags: [(&str, &Path); 2] = [("--tls-cert", &cert), ("--tls-key", &key)];
    let _served = serve(port, &flags, &client);
    let body = r#"{"inputs":"abc","parameters":{"max_new_tokens":3}}"#;
    let length = body.len();
    let request = format!(
        "POST /generate_stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let answer = ask(port, &client, &request).expect("an answer");
    assert_eq!(answer.matches("data:{\"token\"").count(), 3, "{answer}");
    let older = authority.client(None, &[&rustls::version::TLS12]);
    assert!(health(port, &older).expect("TLS 1.2").contains("200 OK"));
    let mut plain = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let timeout = Some(Duration::from_secs(30));
    plain.set_read_timeout(timeout).expect("a timeout");
    plain
        .write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("it is taken");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/"), "plain HTTP was answered");
}

#[test]
fn clients_must_show_a_certificate_where_asked_to() {
    let authority = Authority::new();
    let (cert, key) = authority.server();
    let port = free_port();
    let ca = authority.path("ca.pem");
    let (known, _) = authority.sign(ExtendedKeyUsagePurpose::ClientAuth);
    let known = authority.client(Some(known), BOTH);
    let flags: [(&str, &Path); 3] = [
        ("--tls-cert", &cert),
        ("--tls-key", &key),
        ("--tls-client-ca", &ca),
    ];
    let _served = serve(port, &flags, &known);
    let (stranger, _) = Authority::new().sign(ExtendedKeyUsagePurpose::ClientAuth);
    for client in [None, Some(stranger)] {
        let client = authority.client(client, BOTH);
        assert!(health(port, &client).is_err(), "a stranger was answered");
    }
}

#[test]
fn files_that_are_no_good_are_told_before_anything_is_loaded() {
    let authority = Authority::new();
    let (cert, key) = authority.server();
    let told = |flags: &[(&str, &Path)]| {
        let mut command = ropeteam();
        command
            .args(["serve", "--port", "0", "--model"])
            .arg("./no/such/model");
        for (flag, path) in flags {
            command.arg(flag).arg(path);
        }
        let output = command.output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let errors = told(&[("--tls-cert", &cert)]);
    assert!(
        errors.contains("tls_cert is set but tls_key is not"),
        "{errors}"
    );
    let errors = told(&[("--tls-cert", &cert), ("--tls-key", &cert)]);
    assert!(
        errors.contains("tls_key: ") && errors.contains("server.pem"),
        "{errors}"
    );
    let errors = told(&[("--tls-cert", &key), ("--tls-key", &key)]);
    assert!(errors.contains("tls_cert: "), "{errors}");
}
