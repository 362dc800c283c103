//! When a request is given up.

use std::time::Duration;

use crate::{call::Query, status::Status};

/// The time a request has: what the client asks for, up to the server's own limit.
///
/// # Errors
/// 400 for a duration that cannot be read.
pub fn of(query: &Query, most: Duration) -> Result<Duration, Status> {
    let Some(text) = query.get("timeout") else { return Ok(most) };
    let wrong = || Status::bad_request(format!("invalid timeout specified in the request URL: {text:?}"));
    let asked = parse(text).ok_or_else(wrong)?;
    Ok(if asked.is_zero() { most } else { asked.min(most) })
}

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

/// What is answered when the time is up. No word that trying again is safe: a write may have happened.
#[must_use]
pub fn passed() -> Status {
    Status::timeout("request did not complete within the requested timeout", 0)
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
