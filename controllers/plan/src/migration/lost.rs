//! What the step says that waits until a person confirms a loss. Commands ask their question with a part of it.

use repot_api::names::CONFIRM_FORCED_MIGRATION;
use repot_apimachinery::time::Time;

use super::observed::SourceSnapshot;
use crate::ledger::{Check, NOT_CONFIRMED};

/// Before the age of the snapshot, which is another one at every look.
const BEFORE_AGE: &str = " and is ";
/// Before what a person can do.
const BEFORE_ADVICE: &str = "; confirm it by annotation ";

/// Waits until a person has confirmed what is lost. `is`: `is lost`, or `may be lost`.
pub(crate) fn is_confirmed(
    newest: &SourceSnapshot,
    is: &str,
    (confirmed, source): (bool, &str),
    now: Time,
) -> Check {
    let SourceSnapshot { name, revision, created } = newest;
    let age = now.since(*created).as_secs();
    let lost = format!(
        "what the source has stored since its snapshot {name} {is}: it holds revision {revision}{BEFORE_AGE}{age} s old"
    );
    match confirmed {
        true => Check::Met(format!("confirmed: {lost}")),
        false => {
            Check::waiting(NOT_CONFIRMED, format!("{lost}{BEFORE_ADVICE}{CONFIRM_FORCED_MIGRATION}={source}"))
        }
    }
}

/// The part of the message of a step that is the same at every look: which snapshot it is, and which revision it holds.
#[must_use]
pub fn lasting_part(message: &str) -> &str {
    let part = message.split(BEFORE_ADVICE).next().unwrap_or_default();
    part.split(BEFORE_AGE).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn part_that_lasts_is_the_same_at_every_look() {
        let created = Time::parse("2026-11-28T05:55:46Z").expect("a time");
        let newest = SourceSnapshot { name: "Incr-1-495-1795845346.gz".to_owned(), revision: 495, created };
        let message = |after: u64| {
            let now = created.after(Duration::from_secs(after));
            match is_confirmed(&newest, "may be lost", (false, "seed-a"), now) {
                Check::Waiting(why) => why.message,
                other => panic!("{other:?}"),
            }
        };
        assert_ne!(message(10), message(13));
        let lasting = "what the source has stored since its snapshot Incr-1-495-1795845346.gz may be lost: it holds revision 495";
        assert_eq!((lasting_part(&message(10)), lasting_part(&message(13))), (lasting, lasting));
    }
}
