//! Schedules in the format of cron: five fields, in UTC.

use std::ops::RangeInclusive;

use crate::time::Time;

/// Names that stand for five fields.
const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const DAY: u64 = 86_400;
/// The longest time between two points of a schedule that has any: from one 29th of February to the next, over a year such as
/// 2100, and one more for the day of the week.
const HORIZON_DAYS: u64 = 41 * 366;

/// One field: its name, the numbers it takes, and the words that stand for them.
type Field = (&'static str, RangeInclusive<u64>, &'static [&'static str]);

const FIELDS: [Field; 5] = [
    ("minute", 0..=59, &[]),
    ("hour", 0..=23, &[]),
    ("day of the month", 1..=31, &[]),
    ("month", 1..=12, MONTHS),
    ("day of the week", 0..=6, DAYS),
];

/// A schedule. The bit of each number that a field takes is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Minutes of the hour, 0 to 59.
    pub minutes: u64,
    /// Hours of the day, 0 to 23, in UTC.
    pub hours: u64,
    /// Of the month, 1 to 31.
    pub days: u64,
    /// Months of the year, 1 to 12.
    pub months: u64,
    /// 0, a Sunday, to 6.
    pub weekdays: u64,
    /// Both the day of the month and that of the week are restricted: then either is enough, as in cron.
    pub either_day: bool,
}

impl Schedule {
    /// Reads five fields, or a name such as `@daily`.
    ///
    /// # Errors
    /// What is expected instead, and in which field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = MACROS.iter().find(|(name, _)| *name == text);
        let text = named.map_or(text, |(_, fields)| fields);
        let texts: Vec<&str> = text.split_whitespace().collect();
        let texts: [&str; 5] = texts.try_into().map_err(|_| {
            let names = MACROS.map(|(name, _)| name).join(", ");
            format!(
                "must be the five fields of a cron schedule (minute, hour, day of the month, month, day of the week) or one of {names}"
            )
        })?;
        let mut bits = [0; 5];
        for ((bits, text), field) in bits.iter_mut().zip(texts).zip(&FIELDS) {
            *bits = read(text, field)?;
        }
        let restricted = |field: &str| !field.starts_with(['*', '?']);
        let [minutes, hours, days, months, weekdays] = bits;
        let either_day = restricted(texts[2]) && restricted(texts[4]);
        Ok(Self { minutes, hours, days, months, weekdays, either_day })
    }
}

fn read(text: &str, field: &Field) -> Result<u64, String> {
    let bits = text.split(',').try_fold(0, |all, part| Some(all | span(part, field)?));
    bits.ok_or_else(|| {
        let (name, numbers, _) = field;
        let (low, high) = (numbers.start(), numbers.end());
        format!(
            "{text:?} is no {name}: must be *, numbers from {low} to {high}, ranges a-b, steps /n, or a list of these"
        )
    })
}

/// `*`, `5`, `1-5`, each with `/2` behind it or not; `5/2` goes on to the end.
fn span(part: &str, field: &Field) -> Option<u64> {
    let (low, high) = (*field.1.start(), *field.1.end());
    let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
    let stepped = step.is_some();
    let step = step.map_or(Some(1), |step| number(step).filter(|n| (1..=high).contains(n)))?;
    let (from, to) = match span.split_once('-') {
        _ if matches!(span, "*" | "?") => (low, high),
        Some((from, to)) => (point(from, field)?, point(to, field)?),
        None if stepped => (point(span, field)?, high),
        None => (point(span, field)?, point(span, field)?),
    };
    let step = usize::try_from(step).ok()?;
    (from <= to).then(|| (from..=to).step_by(step).fold(0, |all, n| all | 1 << n))
}

fn point(text: &str, (_, numbers, words): &Field) -> Option<u64> {
    let word = (*numbers.start()..).zip(*words).find(|(_, word)| word.eq_ignore_ascii_case(text));
    word.map(|(number, _)| number).or_else(|| number(text)).filter(|number| numbers.contains(number))
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The first point after `time`; nothing for one that never comes, such as the 30th of February.
#[must_use]
pub fn next(schedule: &Schedule, time: Time) -> Option<Time> {
    let first = time.0 / 60 * 60 + 60;
    let today = first / DAY;
    for day in today..today + HORIZON_DAYS {
        if !has_day(schedule, Time(day * DAY)) {
            continue;
        }
        let from = if day == today { first % DAY / 60 } else { 0 };
        let fits =
            |minute: &u64| schedule.hours & bit(minute / 60) != 0 && schedule.minutes & bit(minute % 60) != 0;
        if let Some(minute) = (from..1440).find(fits) {
            return Some(Time(day * DAY + minute * 60));
        }
    }
    None
}

fn has_day(schedule: &Schedule, day: Time) -> bool {
    let (_, month, date) = day.date();
    let (by_date, by_week) = (schedule.days & bit(date) != 0, schedule.weekdays & bit(day.weekday()) != 0);
    let fits = if schedule.either_day { by_date || by_week } else { by_date && by_week };
    fits && schedule.months & bit(month) != 0
}

fn bit(number: u64) -> u64 {
    1 << number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_cron_accepts() {
        for text in ["0 * * * *", "*/15 0-6,22 1 jan-mar MON", "@daily", "5/10 ? * * 0", "0  3 * *  sun"] {
            assert!(Schedule::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn rejects_what_is_no_schedule() {
        for text in [
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
            "a * * * *",
            "1,,2 * * * *",
            "- * * * *",
            "/ * * * *",
            "TZ=UTC 0 * * * *",
            "*/60 * * * *",
            "- * * * *",
            "*-5 * * * *",
        ] {
            assert!(Schedule::parse(text).is_err(), "{text:?} was accepted");
        }
        let error = Schedule::parse("60 * * * *").expect_err("no minute");
        assert!(error.starts_with("\"60\" is no minute"), "{error}");
    }

    #[test]
    fn fields_become_bits() {
        let schedule = Schedule::parse("5/20 1-3,22 13 feb fri").expect("a schedule");
        let bits = |numbers: &[u64]| numbers.iter().fold(0, |all, n| all | 1 << n);
        assert_eq!((schedule.minutes, schedule.hours), (bits(&[5, 25, 45]), bits(&[1, 2, 3, 22])));
        assert_eq!(
            (schedule.days, schedule.months, schedule.weekdays),
            (bits(&[13]), bits(&[2]), bits(&[5]))
        );
        assert!(schedule.either_day && !Schedule::parse("@daily").expect("a schedule").either_day);
    }

    fn point_after(schedule: &str, after: &str) -> String {
        let time = Time::parse(after).expect("a time");
        let next = super::next(&Schedule::parse(schedule).expect("a schedule"), time);
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
            assert_eq!(point_after(schedule, after), expected, "{schedule} after {after}");
        }
    }
}
