//! The files that a result is written to. They are opened before a run: a path that is wrong is told at once and not after an hour.

use super::{Report, csv, html};
use crate::bench::kernels::KernelReport;
use crate::bench::load::Run;
use crate::start_error::StartError;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Open files, by form.
#[derive(Default)]
pub struct Outputs {
    json: Option<(PathBuf, File)>,
    csv: Option<(PathBuf, File)>,
    html: Option<(PathBuf, File)>,
}

impl Outputs {
    /// Opens the files that are named.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn open(
        json: Option<&Path>,
        csv: Option<&Path>,
        html: Option<&Path>,
    ) -> Result<Self, StartError> {
        let open = |path: Option<&Path>| path.map(create).transpose();
        Ok(Outputs {
            json: open(json)?,
            csv: open(csv)?,
            html: open(html)?,
        })
    }

    /// Writes the result in every form that was asked for.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(self, report: &Report, run: &Run) -> Result<(), StartError> {
        if let Some(file) = self.json {
            put_json(file, report)?;
        }
        if let Some(file) = self.csv {
            put(file, &csv::text(run))?;
        }
        if let Some(file) = self.html {
            put(file, &html::page(report, run))?;
        }
        Ok(())
    }

    /// Writes the figures of kernels, which have no other form.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_kernels(self, report: &KernelReport) -> Result<(), StartError> {
        self.json.map_or(Ok(()), |file| put_json(file, report))
    }
}

fn put_json(file: (PathBuf, File), value: &impl Serialize) -> Result<(), StartError> {
    let json = serde_json::to_string_pretty(value);
    let json = json.map_err(|error| StartError::Other(error.to_string()))?;
    put(file, &(json + "\n"))
}

fn create(path: &Path) -> Result<(PathBuf, File), StartError> {
    let file = File::create(path).map_err(|error| wrong(path, &error))?;
    Ok((path.to_owned(), file))
}

fn put((path, mut file): (PathBuf, File), text: &str) -> Result<(), StartError> {
    file.write_all(text.as_bytes())
        .map_err(|error| wrong(&path, &error))
}

fn wrong(path: &Path, error: &std::io::Error) -> StartError {
    StartError::Other(format!("{}: {error}", path.display()))
}
