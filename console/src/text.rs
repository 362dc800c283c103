//! Times and tables as text.

use jiff::Timestamp;

/// The text without control characters and without marks that change its direction: what others have written must not move the cursor
/// of a terminal.
#[must_use]
pub fn one_line(text: &str) -> String {
    let is_unsafe = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect()
}

/// Seconds as people say them: `7s`, `2m14s`, `3h05m`, `2d3h`.
#[must_use]
pub fn duration(seconds: i64) -> String {
    let (sign, all) = (if seconds < 0 { "-" } else { "" }, seconds.unsigned_abs());
    let (days, hours, minutes, rest) = (all / 86_400, all / 3600 % 24, all / 60 % 60, all % 60);
    match (days, all / 3600, minutes) {
        (0, 0, 0) => format!("{sign}{rest}s"),
        (0, 0, _) => format!("{sign}{minutes}m{rest:02}s"),
        (0, ..) => format!("{sign}{hours}h{minutes:02}m"),
        _ => format!("{sign}{days}d{hours}h"),
    }
}

/// How long ago a time was.
#[must_use]
pub fn ago(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(time).as_secs();
    format!("{} ago", duration(seconds.max(0)))
}

/// Bytes in the unit that people use for them: `512 B`, `1.5 MiB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut value, mut unit) = (count as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Rows with the columns below each other, two spaces between them; the last column keeps its own width.
#[must_use]
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let cases = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m00s"),
            (134, "2m14s"),
            (3600, "1h00m"),
            (11_100, "3h05m"),
            (86_400, "1d0h"),
            (183_600, "2d3h"),
            (-5, "-5s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn bytes_are_in_the_largest_unit_that_has_one() {
        for (count, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB")] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    }

    #[test]
    fn line_of_others_has_no_escape_and_no_mark_of_direction() {
        assert_eq!(one_line("a\u{1b}[2J\nb\u{202e}c"), "a [2J b c");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "bb", "end"], ["long", "b", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "a     bb  end\nlong  b\n");
    }
}
