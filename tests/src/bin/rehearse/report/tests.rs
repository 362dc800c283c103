use std::time::Duration;

use super::*;

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

fn failure(begun: i64, ended: i64, kind: &str) -> Failure {
    let message = format!("{kind} at {begun}\u{1b}[31m");
    Failure { begun: time(begun), ended: time(ended), kind: kind.to_owned(), message }
}

fn window(from: i64, to: i64) -> Window {
    Window { why: "the API is away".to_owned(), from: time(from), to: time(to) }
}

fn count() -> Count {
    Count {
        answered: 900,
        failed: Vec::new(),
        repeated: 3,
        slowest: Duration::from_millis(80),
        longest_gap: Duration::from_millis(7250),
        gap_began: Some(time(11)),
    }
}

fn step(name: &str, started: i64, completed: Option<i64>) -> Step {
    Step {
        side: "destination",
        name: name.to_owned(),
        state: "Succeeded".to_owned(),
        started: Some(time(started)),
        completed: completed.map(time),
        seconds: completed.map(|completed| completed - started),
        attempts: 1,
    }
}

fn report(failures: &[Failure]) -> Report {
    let windows = vec![window(10, 20)];
    let requests = RequestsReport::new(&count(), failures, &windows);
    let checks = vec![requests.proof(), Proof::of("writes are there", Ok("12 of 12".to_owned()))];
    Report {
        flow: "classic",
        round_trip_millis: 30,
        stored_bytes: 200_000_000,
        requests_per_second: 40,
        fault: Some("ApiServes=kill".to_owned()),
        ended: "Succeeded".to_owned(),
        may_end: &["Succeeded"],
        machine: Machine { cores: 2, highest_load: 18.25 },
        proved: checks.iter().all(|check| check.holds),
        requests,
        windows,
        api_outage: Some(Outage { from: time(10), to: Some(time(17)), seconds: Some(7) }),
        steps: vec![
            step("ApiStopped", 2, Some(8)),
            step("EtcdServes", 9, Some(15)),
            step("ApiServes", 20, None),
        ],
        checks,
        not_proved: vec!["real networks".to_owned()],
    }
}

#[test]
fn failures_are_counted_by_kind_and_those_outside_of_windows_are_wrong() {
    let failures = [
        failure(1, 12, "no answer"),
        failure(13, 14, "no connection"),
        failure(15, 16, "no connection"),
        failure(22, 23, "no connection"),
        failure(23, 23, "no connection"),
        failure(5, 7, "status 500"),
    ];
    let found = RequestsReport::new(&count(), &failures, &[window(10, 20)]);
    let kinds: Vec<_> =
        found.failures.iter().map(|kind| (kind.kind.as_str(), kind.count, kind.wrongly)).collect();
    assert_eq!(kinds, [("no answer", 1, 0), ("no connection", 4, 1), ("status 500", 1, 1)]);
    assert_eq!((found.failed, found.failed_wrongly), (6, 2));
    assert!(!found.proof().holds);
    assert_eq!(found.failures[1].first, time(14));
    assert!(!found.failures[1].message.contains('\u{1b}'), "{:?}", found.failures[1]);
}

#[test]
fn report_for_people_has_the_numbers_and_what_was_not_proved() {
    let text = report(&[failure(12, 13, "no connection")]).text("bars");
    let expected = "\
bars
Round trip between the seeds 30 ms, 200 MB stored before, 40 requests a second, fault ApiServes=kill.
It ended as Succeeded; it may end as Succeeded.

Requests answered  900
Requests failed    1, 0 of them wrongly
Repeated as asked  3
Slowest answer     80 ms
Longest gap        7250 ms from one answer to the next, from 2027-01-15T08:00:11.000Z (destination EtcdServes)
API outage         7s
This machine       2 cores, load average up to 18.2
  no connection: 1, 0 of them wrongly; the first at 2027-01-15T08:00:13Z: no connection at 12 [31m
  requests may fail from 2027-01-15T08:00:10Z to 2027-01-15T08:00:20Z: the API is away

Proved:
  yes  no request failed that had to be answered: 900 answered, 1 failed at times at which they may
  yes  writes are there: 12 of 12

Not proved:
  real networks
";
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn failure_that_is_wrong_is_no_proof_and_stands_in_both_forms() {
    let report = report(&[failure(30, 31, "status 500")]);
    let text = report.text("bars");
    assert!(text.contains("Not all that was promised was seen:\n  NO   no request failed"), "{text}");
    assert!(text.contains("This machine had much more to do"), "{text}");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!((&json["proved"], &json["requests"]["failedWrongly"]), (&false.into(), &1.into()));
    assert_eq!(json["apiOutage"]["seconds"], 7);
}

#[test]
fn message_of_any_length_is_one_short_line() {
    assert_eq!(shorten("a\nb"), "a b");
    assert_eq!(shorten(&"ä".repeat(1000)).chars().count(), LONGEST_MESSAGE + 3);
}
