//! The sum of the `test result:` lines that test binaries print.

#[derive(Debug, Default)]
pub(super) struct Totals {
    binaries: u64,
    passed: u64,
    failed: u64,
}

impl Totals {
    /// Adds the counts of `line` if it is a result line.
    pub(super) fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        self.binaries += 1;
        self.passed += count_before(result, " passed");
        self.failed += count_before(result, " failed");
    }

    /// The line with the sums; `None` if no tests were run.
    pub(super) fn line(&self) -> Option<String> {
        (self.binaries > 0).then(|| format!("{} passed, {} failed", self.passed, self.failed))
    }
}

fn count_before(result: &str, word: &str) -> u64 {
    let number = result
        .split(word)
        .next()
        .and_then(|before| before.rsplit(' ').next());
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_add_up() {
        let mut totals = Totals::default();
        assert_eq!(totals.line(), None);
        totals.add("test key::tests::order ... ok\n");
        totals.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n");
        totals.add(
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(totals.line().as_deref(), Some("15 passed, 2 failed"));
    }
}
