//! When a schedule comes due, in UTC.

use repot_apimachinery::{schedule::Schedule, time::Time};


const DAY: u64 = 86_400;
/// The longest time between two points of a schedule that has any: from one 29th of February to the next, over a year such as
/// 2100, and one more for the day of the week.
const HORIZON_DAYS: u64 = 41 * 366;

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
    use repot_apimachinery::schedule::*;

    fn point_after(schedule: &str, after: &str) -> String {
        let time = Time::parse(after).expect("a time");
        let next = repot_apimachinery::schedule::next(&Schedule::parse(schedule).expect("a schedule"), time);
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
