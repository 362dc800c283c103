//! Kubernetes quantities, as far as counts need them: `3`, `1k`, `2Ki`, `1e3`, `500m`.

/// A quantity in thousandths; a fraction of those is dropped, what is too large to count is all there is.
#[must_use]
pub fn thousandths(text: &str) -> Option<i128> {
    let digits = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (numerator, denominator) = factor(suffix)?;
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let decimal = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !decimal(whole) || !decimal(fraction) {
        return None;
    }
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= 18)?;
    let value: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let scaled = value.saturating_mul(numerator).saturating_mul(1000);
    let scaled = scaled / denominator / 10_i128.pow(places);
    Some(if negative { -scaled } else { scaled })
}

/// What a suffix multiplies by, and divides by.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1024_i128.pow(power), 1));
    match suffix {
        "n" => return Some((1, 1_000_000_000)),
        "u" => return Some((1, 1_000_000)),
        "m" => return Some((1, 1000)),
        "Ki" => return binary(1),
        "Mi" => return binary(2),
        "Gi" => return binary(3),
        "Ti" => return binary(4),
        "Pi" => return binary(5),
        "Ei" => return binary(6),
        _ => {}
    }
    let exponent = match suffix {
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        other => other.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?,
    };
    match exponent {
        0..=18 => Some((10_i128.pow(exponent.unsigned_abs()), 1)),
        -18..=-1 => Some((1, 10_i128.pow(exponent.unsigned_abs()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_quantities() {
        for (text, expected) in [
            ("0", Some(0)),
            ("3", Some(3000)),
            ("+3", Some(3000)),
            ("-1", Some(-1000)),
            ("1.5", Some(1500)),
            (".5", Some(500)),
            ("500m", Some(500)),
            ("1k", Some(1_000_000)),
            ("2Ki", Some(2_048_000)),
            ("1e3", Some(1_000_000)),
            ("1E", Some(1_000_000_000_000_000_000_000)),
            ("15e-1", Some(1500)),
            ("", None),
            ("k", None),
            ("1x", None),
            ("1..2", None),
            ("1e99", None),
        ] {
            assert_eq!(thousandths(text), expected, "{text:?}");
        }
    }
}
