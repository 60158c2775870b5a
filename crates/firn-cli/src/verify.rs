//! `firn verify` and `firn repair`.

use crate::byte_size::ByteSize;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{grouped, print, print_json};
use crate::progress::{Progress, watched};
use crate::stats::print_report;
use clap::Args;
use firndb::{Db, Error, ErrorKind, Options, VerifyReport};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The maximum number of damages repeated in the final sentence.
const REPEATED_MAX: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One place where bytes differ from those written.
#[derive(Debug, Clone, Serialize)]
struct Damage {
    /// The file, the place in it, and the expected contents.
    what: String,
    /// The first and the last key that may be affected, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<(String, String)>,
}

/// The result for programs.
#[derive(Serialize)]
struct Verdict<'a> {
    ok: bool,
    damages: &'a [Damage],
    #[serde(flatten)]
    report: &'a VerifyReport,
}

impl Verify {
    pub(crate) fn run(self, options: Options) -> Outcome {
        let (report, damages) = examine(&self.db, options)?;
        if self.json {
            print_json(&Verdict {
                ok: damages.is_empty(),
                damages: &damages,
                report: &report,
            })?;
        }
        if damages.is_empty() {
            if !self.json {
                print(sound(&report))?;
            }
            return Ok(Exit::Done);
        }
        if !self.json {
            damages.iter().try_for_each(|damage| print(line(damage)))?;
        }
        Err(Failure::new(Exit::Corruption, self.sentence(&damages)))
    }

    /// A short description of the damage, and a next step that cannot make it worse.
    fn sentence(&self, damages: &[Damage]) -> String {
        let places = if damages.len() == 1 {
            "one place"
        } else {
            &format!("{} places", damages.len())
        };
        let first: Vec<&str> = damages
            .iter()
            .take(REPEATED_MAX)
            .map(|damage| damage.what.as_str())
            .collect();
        let dots = if damages.len() > REPEATED_MAX {
            "; .."
        } else {
            ""
        };
        format!(
            "{} is damaged in {places}: {}{dots}. Nothing was changed; copy the directory (cp -a) before you run `firn \
             repair` on it",
            self.db.display(),
            first.join("; ")
        )
    }
}

/// Reads the whole database and lists the damage.
///
/// # Errors
/// Any error other than damage that prevents reading.
fn examine(path: &Path, options: Options) -> Outcome<(VerifyReport, Vec<Damage>)> {
    let checked = Db::open_read_only(path, options).and_then(|db| {
        watched(
            &db,
            "verifying",
            Some(db.stats().table_bytes),
            Db::find_damage,
        )
    });
    match checked {
        Ok((report, damages)) => Ok((
            report,
            damages.into_iter().map(described).collect::<Outcome<_>>()?,
        )),
        Err(error) => Ok((VerifyReport::default(), vec![damage(error)?])),
    }
}

fn described(found: firndb::Damage) -> Outcome<Damage> {
    let text = |key: &[u8]| key.escape_ascii().to_string();
    let keys = found.keys.map(|(from, to)| (text(&from), text(&to)));
    Ok(Damage {
        keys,
        ..damage(found.error)?
    })
}

fn damage(error: Error) -> Outcome<Damage> {
    match error.kind() {
        ErrorKind::Corruption => {
            let text = error.to_string();
            // The error advises running this verb.
            let what = text.trim_end_matches("; run `firn verify`").to_owned();
            Ok(Damage { what, keys: None })
        }
        _ => Err(error.into()),
    }
}

fn line(damage: &Damage) -> String {
    match &damage.keys {
        Some((from, to)) => format!("damaged: {}; keys from {from} to {to}", damage.what),
        None => format!("damaged: {}", damage.what),
    }
}

fn sound(report: &VerifyReport) -> String {
    format!(
        "ok: {} entries in {} tables ({} blocks, {}), {} entries in logs",
        grouped(report.entries),
        grouped(report.tables),
        grouped(report.blocks),
        ByteSize(report.bytes),
        grouped(report.log_entries)
    )
}

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Print the planned actions and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Repair {
    /// Exit code 1 if anything could not be read completely and so is in `lost/` (or would be).
    pub(crate) fn run(self, options: Options) -> Outcome {
        let progress = Progress::spinner(if self.dry_run { "looking" } else { "repairing" });
        let repair = if self.dry_run {
            firndb::repair_dry_run
        } else {
            firndb::repair
        };
        let report = repair(self.db.as_path(), &options);
        drop(progress);
        let report = report?;
        if self.json {
            print_json(&report)?
        } else {
            print_report(&report)?
        }
        let lost = report.set_aside.len() + report.tables_lost.len() + report.not_ours.len();
        let is_newest_lost = report.newest_lost || report.buffer_entries_lost > 0;
        if lost == 0 && !is_newest_lost {
            return Ok(Exit::Done);
        }
        let (is, are) = if self.dry_run {
            ("would be", "would be")
        } else {
            ("was", "are")
        };
        let aside = match report.set_aside.as_slice() {
            [] => format!("no file {is} set aside"),
            files => format!(
                "{} {are} kept in {}",
                files.join(", "),
                self.db.join("lost").display()
            ),
        };
        let missing = match report.tables_lost.as_slice() {
            [] => String::new(),
            tables => format!("; of {} nothing could be read", tables.join(", ")),
        };
        let newest = match (report.newest_lost, report.buffer_entries_lost) {
            (true, _) => "; the newest entries, which were in the pool, are lost".to_owned(),
            (false, 0) => String::new(),
            (false, entries) => format!("; {entries} of the newest entries are lost"),
        };
        let others = match report.not_ours.as_slice() {
            [] => String::new(),
            files => format!(
                "; {} belong to something else and were left alone",
                files.join(", ")
            ),
        };
        Err(Failure::new(
            Exit::NotFound,
            format!("not everything could be taken along: {aside}{missing}{newest}{others}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage_of(place: &str) -> Damage {
        let what = Error::corruption(place, 7, "a block with its checksum").to_string();
        Damage {
            what,
            keys: Some(("a".to_owned(), "b".to_owned())),
        }
    }

    #[test]
    fn every_damage_is_listed_and_the_first_are_repeated() {
        let verify = Verify {
            db: "db".into(),
            json: false,
        };
        let damages: Vec<Damage> = ["1.sst", "2.sst", "3.sst", "4.sst"].map(damage_of).to_vec();
        assert!(
            line(&damages[3]).contains("4.sst") && line(&damages[3]).ends_with("keys from a to b")
        );
        let sentence = verify.sentence(&damages);
        assert!(
            sentence.starts_with("db is damaged in 4 places: 1.sst") && sentence.contains("3.sst"),
            "{sentence}"
        );
        assert!(
            !sentence.contains("4.sst") && sentence.contains("cp -a"),
            "{sentence}"
        );
        let report = VerifyReport::default();
        let json = serde_json::to_value(Verdict {
            ok: false,
            damages: &damages,
            report: &report,
        })
        .unwrap();
        assert_eq!(
            (&json["ok"], &json["damages"][1]["keys"][0]),
            (&false.into(), &"a".into())
        );
    }
}
