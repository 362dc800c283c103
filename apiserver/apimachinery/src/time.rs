//! Points in time, as arguments. Nothing in here knows what time it is.

use std::time::Duration;

/// A point in time, in whole seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

const DAY: u64 = 86_400;

impl Time {
    /// The time that is later by `wait`, of which only whole seconds count.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait.as_secs()))
    }

    /// How long ago `earlier` was; zero where it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }

    /// The time in RFC 3339, in UTC and whole seconds, such as `2026-05-01T06:30:00Z`.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let (year, month, day) = self.date();
        let second = self.0 % DAY;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// Reads what [`Self::to_rfc3339`] wrote, and nothing else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let seconds = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
        let days = (1970..year).map(days_of_year).sum::<u64>()
            + (1..month).map(|month| days_of_month(year, month)).sum::<u64>()
            + day.checked_sub(1)?;
        let time = Self(days * DAY + seconds);
        // Whatever was not read as it is written, such as a 31st of April, is no time.
        (time.to_rfc3339() == text).then_some(time)
    }

    /// Year, month from 1, day from 1, in UTC.
    #[must_use]
    pub fn date(self) -> (u64, u64, u64) {
        let (mut year, mut days) = (1970, self.0 / DAY);
        while days >= days_of_year(year) {
            days -= days_of_year(year);
            year += 1;
        }
        let mut month = 1;
        while days >= days_of_month(year, month) {
            days -= days_of_month(year, month);
            month += 1;
        }
        (year, month, days + 1)
    }

    /// Hour and minute of the day, in UTC.
    #[must_use]
    pub fn clock(self) -> (u64, u64) {
        (self.0 % DAY / 3600, self.0 / 60 % 60)
    }

    /// Day of the week; Sunday is 0.
    #[must_use]
    pub fn weekday(self) -> u64 {
        (self.0 / DAY + 4) % 7
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_777_617_000, "2026-05-01T06:30:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!(Time(seconds).to_rfc3339(), text);
            assert_eq!(Time::parse(text), Some(Time(seconds)));
        }
        for bad in [
            "",
            "2026-05-01",
            "2026-04-31T00:00:00Z",
            "2026-05-01T06:30:00+02:00",
            "2026-05-01T06:30:00.5Z",
            "ä",
        ] {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
        // A Friday.
        assert_eq!(Time(1_777_617_000).weekday(), 5);
        assert_eq!(Time(1_777_617_000).clock(), (6, 30));
    }
}
