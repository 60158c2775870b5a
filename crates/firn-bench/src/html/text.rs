//! Strings, numbers and dates in the form shown on the page.

/// `text` with the special characters of HTML and SVG escaped, for contents and for quoted
/// attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in a document in any form.
            control if control.is_control() && !matches!(control, '\n' | '\t') => {
                escaped.push('\u{fffd}')
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// `text` as part of an id: letters and digits, with a hyphen for every other character.
pub(super) fn slug(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect()
}

/// `text`, cut off with an ellipsis if it has more than `characters`.
pub(super) fn shortened(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    text.chars()
        .take(characters.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// A command line that a shell splits into `words`.
pub(super) fn command_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// `1234567` as `1,234,567`.
pub(super) fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if number < -0.5 {
        format!("-{grouped}")
    } else {
        grouped
    }
}

/// Three significant digits, without trailing zeros.
pub(super) fn digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return if number == 0.0 {
            "0".to_owned()
        } else {
            "–".to_owned()
        };
    }
    if number.abs() < 1e-4 {
        return format!("{number:.1e}");
    }
    let decimals = (2 - number.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The number of rounds, in words.
pub(super) fn rounds(count: u32) -> String {
    format!("{count} {}", if count == 1 { "round" } else { "rounds" })
}

/// A number such as `12.3k` or `4.5M`.
pub(super) fn thousands(number: f64) -> String {
    scaled(number, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")])
}

/// A number of bytes in decimal units.
pub(super) fn bytes(number: f64) -> String {
    scaled(
        number,
        &[
            (1e12, " TB"),
            (1e9, " GB"),
            (1e6, " MB"),
            (1e3, " kB"),
            (1.0, " B"),
        ],
    )
}

/// Microseconds in a suitable unit.
pub(super) fn micros(number: f64) -> String {
    scaled(
        number,
        &[(1e6, " s"), (1e3, " ms"), (1.0, " µs"), (1e-3, " ns")],
    )
}

/// A number in the largest of `units` that it reaches, otherwise in the smallest.
fn scaled(number: f64, units: &[(f64, &str)]) -> String {
    // A value that would be rounded up to 1000 of one unit is 1 of the next.
    let reached = |(size, _): &&(f64, &str)| number.abs() >= size * 0.9995;
    match units
        .iter()
        .find(reached)
        .or(units.last())
        .filter(|_| number != 0.0)
    {
        Some((size, name)) => format!("{}{name}", digits(number / size)),
        None => "0".to_owned(),
    }
}

/// Seconds since 1970 as date and time in UTC.
pub(super) fn date(unix_seconds: u64) -> String {
    const DAY: u64 = 86_400;
    let (days, second) = (unix_seconds / DAY, unix_seconds % DAY);
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`: years start
    // in March, so that the leap day is the last day of a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34:56 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(
            date(4_107_542_400),
            "2100-03-01 00:00:00 UTC",
            "2100 has no leap day"
        );
    }

    #[test]
    fn numbers() {
        assert_eq!(
            [whole(0.0), whole(999.6), whole(1_234_567.0)],
            ["0", "1,000", "1,234,567"]
        );
        assert_eq!(
            [
                digits(0.0),
                digits(1.0),
                digits(0.012_345),
                digits(98_765.4)
            ],
            ["0", "1", "0.0123", "98765"]
        );
        assert_eq!(
            [digits(1.5), digits(f64::NAN), digits(8.9e-8)],
            ["1.5", "–", "8.9e-8"]
        );
        assert_eq!(
            [thousands(999.6), thousands(12_340.0), thousands(2e6)],
            ["1k", "12.3k", "2M"]
        );
        assert_eq!(
            [bytes(0.0), bytes(12.0), bytes(1.5e9)],
            ["0", "12 B", "1.5 GB"]
        );
        assert_eq!(
            [micros(0.5), micros(12.0), micros(2500.0), micros(3e6)],
            ["500 ns", "12 µs", "2.5 ms", "3 s"]
        );
    }

    #[test]
    fn words() {
        assert_eq!(
            escape("<a b=\"c\">&'\u{1b}"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\u{fffd}"
        );
        assert_eq!(slug("mixed:50/40/10"), "mixed-50-40-10");
        assert_eq!(
            (shortened("abc", 3), shortened("abcd", 3)),
            ("abc".into(), "ab…".into())
        );
        assert_eq!(
            command_line(&["firn".into(), "it's".into(), String::new()]),
            r"firn 'it'\''s' ''"
        );
    }
}
