//! Durations as Go writes them.

use std::time::Duration;

/// A duration as Go writes it: `1h2m3.5s`, `300ms`.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (unit, seconds) = [
            ("ms", 1e-3),
            ("us", 1e-6),
            ("\u{b5}s", 1e-6),
            ("ns", 1e-9),
            ("h", 3600.0),
            ("m", 60.0),
            ("s", 1.0),
        ]
        .into_iter()
        .find(|(unit, _)| rest.starts_with(unit))?;
        total += number * seconds;
        rest = &rest[unit.len()..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations() {
        for (text, millis) in
            [("10s", 10_000), ("1m30s", 90_000), ("1h", 3_600_000), ("300ms", 300), ("1.5s", 1500), ("0", 0)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "1x", "-1s", "1s x"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
