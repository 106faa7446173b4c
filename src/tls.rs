//! TLS for the ports: certificate, key and, where clients must show a certificate of their own, who may sign those. TLS 1.2 and 1.3 only.
//! Not here: which port has which (`serve/ports.rs`).

use crate::start_error::StartError;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// The files that make a port speak TLS, each with the option that names it.
#[derive(Clone, Copy, Debug)]
pub struct TlsFiles<'a> {
    /// The certificate, its issuers behind it.
    pub cert: NamedFile<'a>,
    /// Its private key, not encrypted.
    pub key: NamedFile<'a>,
    /// Certificates of those who may sign a client's; without it clients need none.
    pub client_ca: Option<NamedFile<'a>>,
    /// Certificates that no longer hold.
    pub client_crl: Option<NamedFile<'a>>,
}

/// A file and the option that names it.
pub type NamedFile<'a> = (&'static str, &'a Path);

/// Reads the files.
///
/// # Errors
/// The first that cannot be used, with its option and why.
pub fn server_config(files: &TlsFiles<'_>) -> Result<ServerConfig, StartError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| StartError::Other(format!("TLS: {error}")))?;
    let builder = match files.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(verifier(ca, files.client_crl, provider)?),
    };
    let chain = certificates(files.cert)?;
    let key = PrivateKeyDer::from_pem_file(files.key.1)
        .map_err(|error| unusable(files.key, &format!("no private key in PEM: {error}")))?;
    builder.with_single_cert(chain, key).map_err(|error| {
        unusable(
            files.key,
            &format!("does not go with the certificate: {error}"),
        )
    })
}

fn verifier(
    ca: NamedFile<'_>,
    crl: Option<NamedFile<'_>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, StartError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(ca, &error))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(crl) = crl {
        let lists = CertificateRevocationListDer::pem_file_iter(crl.1)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(crl, &error))?;
        if lists.is_empty() {
            return Err(unusable(crl, &"it holds no revocation list in PEM"));
        }
        builder = builder.with_crls(lists);
    }
    builder.build().map_err(|error| unusable(ca, &error))
}

fn certificates(file: NamedFile<'_>) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let read =
        CertificateDer::pem_file_iter(file.1).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| unusable(file, &error))?;
    match found.is_empty() {
        true => Err(unusable(file, &"it holds no certificate in PEM")),
        false => Ok(found),
    }
}

fn unusable((option, path): NamedFile<'_>, problem: &dyn Display) -> StartError {
    StartError::Usage(format!("{option}: {}: {problem}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use std::path::PathBuf;

    /// Writes a fresh certificate and its key.
    fn made(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let (cert_path, key_path) = (
            folder.join(format!("{name}.pem")),
            folder.join(format!("{name}.key")),
        );
        std::fs::write(&cert_path, cert.pem()).expect("a file");
        std::fs::write(&key_path, signing_key.serialize_pem()).expect("a file");
        (cert_path, key_path)
    }

    fn told(cert: &Path, key: &Path, ca: Option<&Path>) -> String {
        let files = TlsFiles {
            cert: ("tls_cert", cert),
            key: ("tls_key", key),
            client_ca: ca.map(|ca| ("tls_client_ca", ca)),
            client_crl: None,
        };
        match server_config(&files) {
            Ok(_) => "good".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn files_are_used_or_named_with_what_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cert, key) = made(folder.path(), "a");
        let (_, other_key) = made(folder.path(), "b");
        assert_eq!(told(&cert, &key, None), "good");
        assert_eq!(told(&cert, &key, Some(&cert)), "good");
        let check = |found: String, option: &str, words: &str| {
            assert!(found.contains(option) && found.contains(words), "{found}");
        };
        check(
            told(&cert, &other_key, None),
            "tls_key: ",
            "does not go with",
        );
        check(told(&cert, &cert, None), "tls_key: ", "no private key");
        check(told(&key, &key, None), "tls_cert: ", "no certificate");
        let nowhere = folder.path().join("nowhere.pem");
        check(told(&nowhere, &key, None), "tls_cert: ", "nowhere.pem");
        check(
            told(&cert, &key, Some(&key)),
            "tls_client_ca: ",
            "no certificate",
        );
    }
}
