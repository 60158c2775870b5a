//! `firn bench report`: a report that was written as JSON, in other forms.

use crate::exit::{Exit, Failure, Outcome};
use clap::Args;
use firn_bench::MatrixReport;
use firndb::Error;
use std::path::{Path, PathBuf};

use super::comparison::print_tables;

#[derive(Debug, Args)]
pub(super) struct Report {
    /// A report that `firn bench ycsb --json` or `firn bench retail --json` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The engines to show, separated by commas; the others are compared with the first
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    engines: Vec<String>,
    /// Write the throughput of the engines beside the first to FILE as an SVG plot
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the report to FILE as a page with plots, readable offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report to FILE as JSON without its rounds, for a document that cites it
    #[arg(long, value_name = "FILE")]
    brief: Option<PathBuf>,
}

impl Report {
    pub(super) fn run(self) -> Outcome {
        let mut report = read(&self.file)?;
        if !self.engines.is_empty() {
            report = report.of_engines(&self.engines)?;
        }
        if let Some(file) = &self.svg {
            write(file, firn_bench::svg(&report)?)?;
        }
        if let Some(file) = &self.html {
            write(file, firn_bench::html(&report)?)?;
        }
        if let Some(file) = &self.brief {
            write(file, report.brief()? + "\n")?;
        }
        if self.svg.is_none() && self.html.is_none() && self.brief.is_none() {
            print_tables(&report)?;
        }
        Ok(Exit::Done)
    }
}

fn read(file: &Path) -> Outcome<MatrixReport> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::from_io("read", file, e))?;
    serde_json::from_str(&text).map_err(|e| {
        let file = file.display();
        Failure::invalid(format!("{file} is not a report of `firn bench`: {e}"))
    })
}

fn write(file: &Path, text: String) -> Outcome<()> {
    std::fs::write(file, text).map_err(|e| Error::from_io("write", file, e).into())
}
