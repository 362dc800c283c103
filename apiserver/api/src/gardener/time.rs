//! Times of Kubernetes, compared without a clock.

/// How far the clocks of two clusters may differ, in seconds. kube-apiserver and Gardener give no bound; five minutes is what
/// Kerberos and most clouds take.
pub const CLOCK_DIFFERENCE: i64 = 300;

/// Seconds between two times in RFC 3339, UTC and whole seconds, as Kubernetes writes them; none where one cannot be read.
#[must_use]
pub fn seconds_between(from: &str, to: &str) -> Option<i64> {
    Some(seconds(to)? - seconds(from)?)
}

/// Seconds since 1970.
fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    // The year begins in March, so that the day that leap years add is the last one.
    let year = if month > 2 { year } else { year - 1 };
    let era_days = 365 * year + year / 4 - year / 100 + year / 400;
    let days = era_days + (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Three numbers of so many digits. Others are refused: times are compared as texts elsewhere.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).zip(digits).map(|(part, digits)| {
        let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse::<i64>().ok())?
    });
    let three = [parts.next()??, parts.next()??, parts.next()??];
    (text.split(separator).count() == three.len()).then_some(three)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_seconds_over_leap_days_and_years() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2026-11-21T12:00:00Z"), Some(1_795_262_400));
        for (from, to, between) in [
            ("2024-02-28T00:00:00Z", "2024-03-01T00:00:00Z", Some(2 * 86_400)),
            ("2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z", Some(86_400)),
            ("2025-12-31T23:59:59.5Z", "2026-01-01T00:00:00Z", Some(1)),
            ("2026-01-01T01:00:00Z", "2026-01-01T00:00:00Z", Some(-3600)),
            ("yesterday", "2026-01-01T00:00:00Z", None),
            ("2026-1-01T00:00:00Z", "2026-01-01T00:00:00Z", None),
            ("+026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", None),
            ("2026-01-01-01T00:00:00Z", "2026-01-01T00:00:00Z", None),
            ("2026-01-01T0:00:00Z", "2026-01-01T00:00:00Z", None),
            ("2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00Z", None),
        ] {
            assert_eq!(seconds_between(from, to), between, "{from} {to}");
        }
    }
}
