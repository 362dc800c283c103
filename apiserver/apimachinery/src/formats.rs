//! Strings with a grammar: times, durations, quantities. The errors say what is expected instead.

use std::ops::RangeInclusive;

type Checked = Result<(), String>;

/// A time in RFC 3339, such as `2026-05-01T06:30:00Z`.
///
/// # Errors
/// What is expected instead.
pub fn date_time(text: &str) -> Checked {
    let wrong = || "must be a time in RFC 3339, such as \"2026-05-01T06:30:00Z\"".to_owned();
    let (date, rest) = text.split_once(['T', 't']).ok_or_else(wrong)?;
    let zone_at = rest.find(['Z', 'z', '+', '-']).ok_or_else(wrong)?;
    let (time, zone) = rest.split_at(zone_at);
    let offset = match zone {
        "Z" | "z" => true,
        _ => numbers(&zone[1..], ':', &[(2, 0..=23), (2, 0..=59)]),
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let fits = numbers(date, '-', &[(4, 0..=9999), (2, 1..=12), (2, 1..=31)])
        && numbers(time, ':', &[(2, 0..=23), (2, 0..=59), (2, 0..=60)])
        && !fraction.is_empty()
        && fraction.bytes().all(|b| b.is_ascii_digit());
    if fits && offset { Ok(()) } else { Err(wrong()) }
}

/// Whether the text is numbers of these widths and ranges with the separator between them.
fn numbers(text: &str, separator: char, parts: &[(usize, RangeInclusive<u32>)]) -> bool {
    let found: Vec<&str> = text.split(separator).collect();
    let fits = |(text, (width, range)): (&&str, &(usize, RangeInclusive<u32>))| {
        text.len() == *width
            && text.bytes().all(|b| b.is_ascii_digit())
            && text.parse().is_ok_and(|number| range.contains(&number))
    };
    found.len() == parts.len() && found.iter().zip(parts).all(fits)
}

/// A duration above zero such as `90s`, `10m` or `1h30m`.
///
/// # Errors
/// What is expected instead.
pub fn duration(text: &str) -> Checked {
    let wrong = || "must be a duration above zero, such as \"90s\", \"10m\" or \"1h30m\"".to_owned();
    let (mut rest, mut seconds, mut units) = (text, 0_u64, "hms");
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..end].parse().map_err(|_| wrong())?;
        let unit = rest[end..].chars().next().ok_or_else(wrong)?;
        // From the largest unit to the smallest, each once.
        units = &units[units.find(unit).ok_or_else(wrong)? + 1..];
        let factor = match unit {
            'h' => 3600,
            'm' => 60,
            _ => 1,
        };
        seconds = number.checked_mul(factor).and_then(|n| n.checked_add(seconds)).ok_or_else(wrong)?;
        rest = &rest[end + 1..];
    }
    if seconds > 0 { Ok(()) } else { Err(wrong()) }
}

/// An amount of storage above zero, such as `25Gi` or `500M`.
///
/// # Errors
/// What is expected instead.
pub fn storage_size(text: &str) -> Checked {
    let wrong = || "must be a quantity above zero, such as \"25Gi\" or \"500M\"".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let known = ["", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].contains(&suffix);
    let digits = number.trim_matches('.') == number && number.matches('.').count() <= 1;
    let positive = number.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if known && digits && positive { Ok(()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tells(check: fn(&str) -> Checked, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in bad {
            assert!(check(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn times() {
        tells(
            date_time,
            &["2026-05-01T06:30:00Z", "2026-05-01t06:30:00.123456+02:00", "2026-12-31T23:59:60z"],
            &[
                "",
                "2026-05-01",
                "2026-13-01T00:00:00Z",
                "2026-05-01T24:00:00Z",
                "2026-05-01T06:30:00",
                "2026-05-01T06:30:00.Z",
                "2026-05-01T06:30:00+2",
                "26-05-01T06:30:00Z",
                "+026-05-01T06:30:00Z",
                "2026-05-01TZ",
            ],
        );
    }

    #[test]
    fn durations() {
        tells(
            duration,
            &["1s", "90s", "10m", "1h30m", "1h0m5s"],
            &[
                "",
                "0s",
                "5",
                "m",
                "-1s",
                "1m1h",
                "1s1s",
                "1d",
                "1.5h",
                "99999999999999999999h",
                "18446744073709551615h",
            ],
        );
    }

    #[test]
    fn sizes() {
        tells(
            storage_size,
            &["1", "25Gi", "0.5Ti", "500M", "1000k"],
            &["", "0", "0Gi", "-1Gi", "Gi", "25GB", "1.Gi", "1..2Gi", ".5Gi", "1e3", "25 Gi"],
        );
    }
}
