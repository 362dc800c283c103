//! What a client saw in each part of a move. Pure.

use repot_apimachinery::time::Time;
use serde_json::{Value, json};

use super::moves::Mode;
use super::probe::Write;
use crate::proc;

/// A part of a move, in seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub name: &'static str,
    pub from: f64,
    pub to: f64,
}

/// What ends each part of a move: the step of a side whose start, or whose end, is the time.
const LIVE: [(&str, &str, &str, Moment); 5] = [
    ("members are exposed", "destination", "SixMemberETCDReady", Moment::Start),
    ("members join", "destination", "SixMemberETCDReady", Moment::End),
    ("both sides serve", "source", "SourceApiStopped", Moment::Start),
    ("the API of the source stops", "destination", "MoveCommitted", Moment::Start),
    ("members of the source leave", "destination", "SourceMembersRemoved", Moment::End),
];
const CLASSIC: [(&str, &str, &str, Moment); 2] = [
    ("prepared", "source", "SourceApiStopped", Moment::Start),
    ("outage", "destination", "ApiDnsSwitched", Moment::End),
];

#[derive(Clone, Copy)]
enum Moment {
    Start,
    End,
}

/// The parts of a move that began at `begun` and ended at `ended`, by its status. A step that has no time begins with the one before.
pub fn of(mode: Mode, migration: &Value, (begun, ended): (f64, f64)) -> Vec<Phase> {
    let ends: &[_] = match mode {
        Mode::Live => &LIVE,
        Mode::Classic => &CLASSIC,
    };
    let (mut from, mut phases) = (begun, Vec::new());
    for (name, side, step, moment) in ends.iter().copied() {
        let to = time(migration, (side, step), moment).unwrap_or(from).max(from);
        phases.push(Phase { name, from, to });
        from = to;
    }
    phases.push(Phase { name: "the rest", from, to: ended });
    phases
}

fn time(migration: &Value, (side, step): (&str, &str), moment: Moment) -> Option<f64> {
    let mut steps = migration["status"][side]["steps"].as_array()?.iter();
    let record = steps.find(|record| record["name"] == step)?;
    let field = match moment {
        Moment::Start => "startTime",
        Moment::End => "completionTime",
    };
    let time = record[field].as_str().and_then(Time::parse)?;
    Some(time.0 as f64)
}

/// What a client saw of a part: writes that were begun in it, how long they took, and the longest time without an answer.
pub fn seen(writes: &[Write], phase: &Phase) -> Value {
    let is_in = |write: &&Write| (phase.from..phase.to).contains(&write.begun);
    let own: Vec<&Write> = writes.iter().filter(is_in).collect();
    let answered = own.iter().filter(|write| write.is_acknowledged);
    let mut millis: Vec<f64> = answered.map(|write| (write.ended - write.begun) * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    json!({
        "seconds": (phase.to - phase.from).round() as u64,
        "writes": millis.len(),
        "failed": own.len() - millis.len(),
        "repeated": own.iter().map(|write| write.repeated).sum::<u32>(),
        "p50Millis": proc::percentile(&millis, 50.0),
        "p99Millis": proc::percentile(&millis, 99.0),
        "longestGapMillis": longest_gap(writes, phase),
    })
}

/// The longest time from one acknowledged answer to the next that ended within a part.
fn longest_gap(writes: &[Write], phase: &Phase) -> f64 {
    let answers: Vec<f64> =
        writes.iter().filter(|write| write.is_acknowledged).map(|write| write.ended).collect();
    let gaps = answers.windows(2).filter(|pair| (phase.from..phase.to).contains(&pair[1]));
    gaps.map(|pair| (pair[1] - pair[0]) * 1e3).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_move_follow_one_another_by_the_times_of_its_steps() {
        let step = |name: &str, start: &str, end: &str| json!({"name": name, "startTime": format!("1970-01-01T00:00:{start}Z"), "completionTime": format!("1970-01-01T00:00:{end}Z")});
        let migration = json!({"status": {
            "source": {"steps": [step("SourceApiStopped", "10", "12")]},
            "destination": {"steps": [step("ApiDnsSwitched", "20", "25")]},
        }});
        let phases = of(Mode::Classic, &migration, (5.0, 40.0));
        let bounds: Vec<_> = phases.iter().map(|phase| (phase.name, phase.from, phase.to)).collect();
        assert_eq!(bounds, [("prepared", 5.0, 10.0), ("outage", 10.0, 25.0), ("the rest", 25.0, 40.0)]);
        let phases = of(Mode::Live, &json!({}), (5.0, 40.0));
        assert_eq!((phases.len(), phases[0].to, phases[5].from), (6, 5.0, 5.0));
    }

    #[test]
    fn gap_belongs_to_the_part_in_which_it_ends() {
        let write = |begun: f64, ended: f64, is_acknowledged: bool| Write {
            begun,
            ended,
            is_acknowledged,
            repeated: 0,
        };
        let writes =
            [write(1.0, 1.1, true), write(1.2, 4.0, false), write(4.1, 4.2, true), write(5.0, 5.1, true)];
        let phase = |from: f64, to: f64| Phase { name: "p", from, to };
        let seen_first = seen(&writes, &phase(0.0, 2.0));
        assert_eq!((&seen_first["writes"], &seen_first["failed"]), (&json!(1), &json!(1)));
        assert_eq!(seen_first["longestGapMillis"], 0.0);
        let gap = seen(&writes, &phase(2.0, 6.0))["longestGapMillis"].as_f64().unwrap_or_default();
        assert!((gap - 3_100.0).abs() < 1.0, "{gap}");
    }
}
