//! What MindIE's fields about TLS become. Its ports check their clients' certificates, so these must be signed by `tlsCaFile` here too.

use super::Became;
use super::whole::{Outcome, Whole, text};
use serde_json::Value;
use std::path::Path;

const OFF: &str = "httpsEnabled is false";

pub(super) fn https(value: &Value, _: &Whole) -> Outcome {
    Ok(Became::nothing(match value.as_bool() {
        Some(true) => "the certificates say it",
        _ => "the ports speak plain HTTP",
    }))
}

pub(super) fn cert(value: &Value, whole: &Whole) -> Outcome {
    file("tls_cert", value, whole)
}

pub(super) fn key(value: &Value, whole: &Whole) -> Outcome {
    file("tls_key", value, whole)
}

pub(super) fn ca(value: &Value, whole: &Whole) -> Outcome {
    file_in("tls_client_ca", value, &whole.ca_path, whole)
}

pub(super) fn crl(value: &Value, whole: &Whole) -> Outcome {
    file_in("tls_client_crl", value, &whole.crl_path, whole)
}

pub(super) fn management_cert(value: &Value, whole: &Whole) -> Outcome {
    file("management_tls_cert", value, whole)
}

pub(super) fn management_key(value: &Value, whole: &Whole) -> Outcome {
    file("management_tls_key", value, whole)
}

pub(super) fn management_ca(value: &Value, whole: &Whole) -> Outcome {
    file_in("management_tls_client_ca", value, &whole.ca_path, whole)
}

pub(super) fn management_crl(value: &Value, whole: &Whole) -> Outcome {
    let folder = &whole.management_crl_path;
    file_in("management_tls_client_crl", value, folder, whole)
}

fn file(option: &'static str, value: &Value, whole: &Whole) -> Outcome {
    match (whole.https, text(value)) {
        (false, _) => Ok(Became::nothing(OFF)),
        (true, "") => Ok(Became::nothing("nothing is asked for")),
        (true, path) => Ok(Became::option(option, path)),
    }
}

fn file_in(option: &'static str, value: &Value, folder: &str, whole: &Whole) -> Outcome {
    let files = value.as_array().map_or(&[][..], Vec::as_slice);
    match (whole.https, files) {
        (false, _) => Ok(Became::nothing(OFF)),
        (true, []) => Ok(Became::nothing("nothing is asked for")),
        (true, [file]) => {
            let path = Path::new(folder).join(text(file));
            Ok(Became::option(option, path.display().to_string()))
        }
        (true, files) => Err(format!(
            "{} files; put their contents into one",
            files.len()
        )),
    }
}
