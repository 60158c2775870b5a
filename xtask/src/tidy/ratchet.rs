//! The ratchet: the existing exceptions to the length limits. They may shrink, never grow.
//!
//! One line each: `KIND PLACE LENGTH`, sorted. `cargo xtask tidy --update` rewrites the file.

use std::collections::BTreeMap;

use super::Finding;

pub(super) const PATH: &str = "xtask/ratchet.txt";
const HEADER: &str = "# Exceptions to the length limits; they only shrink. Rewritten by `cargo xtask tidy --update`.\n";

/// Lengths past their limit, by `KIND PLACE`.
pub(super) type Exceptions = BTreeMap<String, Excess>;

/// One length past its limit, and its location.
#[derive(Debug, Clone)]
pub(super) struct Excess {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) length: usize,
    pub(super) limit: usize,
}

pub(super) fn render(exceptions: &Exceptions) -> String {
    let lines: String = exceptions
        .iter()
        .map(|(key, excess)| format!("{key} {}\n", excess.length))
        .collect();
    format!("{HEADER}{lines}")
}

/// Compares the current exceptions with those in `ratchet`.
pub(super) fn compare(exceptions: &Exceptions, ratchet: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut accepted: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (line, text) in ratchet.lines().enumerate().map(|(i, t)| (i + 1, t)) {
        if text.starts_with('#') || text.is_empty() {
            continue;
        }
        match text
            .rsplit_once(' ')
            .and_then(|(key, n)| Some((key, n.parse().ok()?)))
        {
            Some((key, length)) => _ = accepted.insert(key, (line, length)),
            None => findings.push(Finding::new(
                PATH,
                line,
                "not of the form `KIND PLACE LENGTH`",
            )),
        }
    }
    for (key, excess) in exceptions {
        let Excess {
            file,
            line,
            length,
            limit,
        } = excess;
        let allowed = accepted.get(key.as_str()).map(|&(_, length)| length);
        match allowed {
            None => findings.push(Finding::new(
                file,
                *line,
                format!("{key}: {length}, the limit is {limit}"),
            )),
            Some(allowed) if *length > allowed => {
                let message =
                    format!("{key}: grew from {allowed} to {length}, the limit is {limit}");
                findings.push(Finding::new(file, *line, message));
            }
            Some(_) => {}
        }
    }
    for (key, (line, allowed)) in accepted {
        let present = exceptions.get(key).map_or(0, |excess| excess.length);
        if present < allowed {
            let message = format!(
                "{key}: shrank below {allowed}; run `cargo xtask tidy --update` to keep the gain"
            );
            findings.push(Finding::new(PATH, line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(length: usize) -> Exceptions {
        let excess = Excess {
            file: "a.rs".to_owned(),
            line: 3,
            length,
            limit: 70,
        };
        Exceptions::from([("fn a.rs::f".to_owned(), excess)])
    }

    #[test]
    fn what_is_recorded_passes_and_only_that() {
        let recorded = render(&long(80));
        assert!(compare(&long(80), &recorded).is_empty());
        assert_eq!(compare(&long(80), "").len(), 1);
        assert_eq!(compare(&long(81), &recorded)[0].file, "a.rs");
    }

    #[test]
    fn a_gain_must_be_kept() {
        let recorded = render(&long(80));
        assert_eq!(compare(&long(79), &recorded)[0].file, PATH);
        assert_eq!(compare(&Exceptions::new(), &recorded).len(), 1);
        assert_eq!(compare(&Exceptions::new(), "fn a.rs::f many\n").len(), 1);
    }
}
