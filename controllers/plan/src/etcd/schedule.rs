//! Schedules: the five fields of cron, in UTC.
//!
//! Which texts are schedules is decided by `repot_api::formats::schedule`; a test holds the two together.

use crate::time::Time;

const DAY: u64 = 86_400;
/// The longest time between two points of a schedule that has any: from one 29th of February to the next, over a year such as
/// 2100, and one more for the day of the week.
const HORIZON_DAYS: u64 = 41 * 366;

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A schedule: bits of the numbers that each field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both the day of the month and that of the week are restricted: then either is enough, as in cron.
    either_day: bool,
}

impl Schedule {
    /// Reads the five fields, or a name such as `@daily`; nothing where it is no schedule.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else { return None };
        let restricted = |field: &str| !field.starts_with(['*', '?']);
        Some(Self {
            minutes: bits(minutes, 0, 59, &[])?,
            hours: bits(hours, 0, 23, &[])?,
            days: bits(days, 1, 31, &[])?,
            months: bits(months, 1, 12, MONTHS)?,
            weekdays: bits(weekdays, 0, 6, DAYS)?,
            either_day: restricted(days) && restricted(weekdays),
        })
    }

    /// The first point after `time`; nothing for one that never comes, such as the 30th of February.
    #[must_use]
    pub fn next(&self, time: Time) -> Option<Time> {
        let first = time.0 / 60 * 60 + 60;
        let today = first / DAY;
        for day in today..today + HORIZON_DAYS {
            if !self.has_day(Time(day * DAY)) {
                continue;
            }
            let from = if day == today { first % DAY / 60 } else { 0 };
            let fits =
                |minute: &u64| self.hours & bit(minute / 60) != 0 && self.minutes & bit(minute % 60) != 0;
            if let Some(minute) = (from..1440).find(fits) {
                return Some(Time(day * DAY + minute * 60));
            }
        }
        None
    }

    fn has_day(&self, day: Time) -> bool {
        let (_, month, date) = day.date();
        let (by_date, by_week) = (self.days & bit(date) != 0, self.weekdays & bit(day.weekday()) != 0);
        let fits = if self.either_day { by_date || by_week } else { by_date && by_week };
        fits && self.months & bit(month) != 0
    }
}

fn bit(number: u64) -> u64 {
    1 << number
}

fn bits(text: &str, low: u64, high: u64, words: &[&str]) -> Option<u64> {
    text.split(',').try_fold(0, |all, part| Some(all | span(part, low, high, words)?))
}

/// `*`, `5`, `1-5`, each with `/2` behind it or not; `5/2` goes on to the end.
fn span(part: &str, low: u64, high: u64, words: &[&str]) -> Option<u64> {
    let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
    let step = step.map_or(Some(1), |step| number(step).filter(|n| (1..=high).contains(n)))?;
    let point = |text| point(text, low, high, words);
    let (from, to) = match span.split_once('-') {
        _ if matches!(span, "*" | "?") => (low, high),
        Some((from, to)) => (point(from)?, point(to)?),
        None if part.contains('/') => (point(span)?, high),
        None => (point(span)?, point(span)?),
    };
    let step = usize::try_from(step).ok()?;
    (from <= to).then(|| (from..=to).step_by(step).fold(0, |all, n| all | bit(n)))
}

fn point(text: &str, low: u64, high: u64, words: &[&str]) -> Option<u64> {
    let word = words.iter().position(|word| word.eq_ignore_ascii_case(text));
    let word = word.and_then(|at| u64::try_from(at).ok()).map(|at| at + low);
    word.or_else(|| number(text)).filter(|n| (low..=high).contains(n))
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str) -> String {
        let time = Time::parse(after).expect("a time");
        let next = Schedule::parse(schedule).expect("a schedule").next(time);
        next.map(Time::to_rfc3339).unwrap_or_default()
    }

    #[test]
    fn the_next_point_is_found() {
        // 2026-05-01 is a Friday.
        for (schedule, after, expected) in [
            ("*/15 * * * *", "2026-05-01T06:30:00Z", "2026-05-01T06:45:00Z"),
            ("0 * * * *", "2026-05-01T23:00:59Z", "2026-05-02T00:00:00Z"),
            ("@daily", "2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("30 4 * * mon-wed", "2026-05-01T06:30:00Z", "2026-05-04T04:30:00Z"),
            ("0 0 13 * fri", "2026-05-01T06:30:00Z", "2026-05-08T00:00:00Z"),
            ("0 0 29 feb *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("0 0 30 2 *", "2026-05-01T06:30:00Z", ""),
            ("5/20 1,3 * * *", "2026-05-01T01:45:00Z", "2026-05-01T03:05:00Z"),
        ] {
            assert_eq!(next(schedule, after), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn schedules_are_those_that_the_api_accepts() {
        for text in [
            "0 * * * *",
            "*/15 0-6,22 1 jan-mar MON",
            "@daily",
            "@yearly",
            "@annually",
            "@monthly",
            "@weekly",
            "@midnight",
            "@hourly",
            "5/10 ? * * 0",
            "0  3 * *  sun",
            "",
            "@never",
            "@every 1h",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "*/60 * * * *",
            "a * * * *",
            "1,,2 * * * *",
            "- * * * *",
            "/ * * * *",
            "TZ=UTC 0 * * * *",
            "*-5 * * * *",
            "? ? ? ? ?",
            "1-2/3,4 * * * *",
        ] {
            assert_eq!(
                Schedule::parse(text).is_some(),
                repot_api::formats::schedule(text).is_ok(),
                "{text:?}"
            );
        }
    }
}
