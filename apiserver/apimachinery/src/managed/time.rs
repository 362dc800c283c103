//! Times as text: enough of RFC 3339 to put entries in order.

/// Seconds since 1970 of a time such as `2024-02-29T12:00:00Z`, with an optional fraction and any offset.
#[must_use]
pub fn seconds(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let separated =
        [(4, "-"), (7, "-"), (13, ":"), (16, ":")].iter().all(|(at, s)| text.get(*at..at + 1) == Some(s));
    if !separated || !matches!(text.get(10..11), Some("T" | "t")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let fits =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    let days = fits.then(|| days_since_1970(year, month, day))?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second - offset(text.get(19..)?)?)
}

/// Seconds east of Greenwich of what follows the seconds: `Z`, `.5Z`, `+02:00`.
fn offset(text: &str) -> Option<i64> {
    let zone = match text.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            (zone.len() < fraction.len()).then_some(zone)?
        }
        None => text,
    };
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let two = |digits: &str| (digits.len() == 2).then(|| digits.parse::<u8>().ok()).flatten().map(i64::from);
    Some(sign * (two(hours)? * 3600 + two(minutes)? * 60))
}

/// Days of the Gregorian calendar, counted in eras of 400 years that begin in March, so that leap days come last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_seconds() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2024-03-01T00:00:00Z", 1_709_251_200),
            ("2024-03-01T00:00:00.250Z", 1_709_251_200),
            ("2024-03-01T02:00:00+02:00", 1_709_251_200),
            ("2024-02-29T19:00:00-05:00", 1_709_251_200),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in [
            "",
            "yesterday",
            "2024-13-01T00:00:00Z",
            "2024-01-01",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00+2",
            "2024-01-01 00:00:00Z",
            "+024-01-01T00:00:00Z",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
