//! The checker itself, on histories written by hand: some that could have happened, and some that could not.

use std::collections::BTreeMap;

use super::{
    agree, linear,
    record::{Answer, Call, History, Listing, Operation, State, Told, Watched},
};

const NAME: u32 = 7;

fn mk(asked: u64, answered: u64, call: Call, answer: Answer) -> Operation {
    Operation { client: 0, name: NAME, call, asked, answered, answer }
}

fn seen(tag: u64) -> Answer {
    Answer::Seen(Some(State { tag, version: tag }))
}

fn update(from: u64, tag: u64) -> Call {
    Call::Update { from, tag }
}

fn is_linear(operations: &[Operation]) -> bool {
    linear::check(operations).is_ok()
}

const NOTHING: Answer = Answer::Seen(None);
const LOST: Answer = Answer::Unknown(None);

#[test]
fn one_after_the_other() {
    let all = [
        mk(1, 2, Call::Get, NOTHING),
        mk(3, 4, Call::Create(1), Answer::Done(1)),
        mk(5, 6, Call::Create(2), Answer::Refused),
        mk(7, 8, update(1, 3), Answer::Done(3)),
        mk(9, 10, update(1, 4), Answer::Refused),
        mk(11, 12, Call::Get, seen(3)),
        mk(13, 14, Call::Delete { from: 3 }, Answer::Done(5)),
        mk(15, 16, Call::Get, NOTHING),
    ];
    assert!(is_linear(&all));
    // Each answer but one is what the others need: any other answer in its place is found.
    for (index, wrong) in
        [(0, seen(1)), (3, Answer::Refused), (4, Answer::Done(4)), (5, seen(1)), (7, seen(3))]
    {
        let mut all = all;
        all[index].answer = wrong;
        assert!(!is_linear(&all), "{:?}", all[index]);
    }
}

#[test]
fn at_the_same_time_either_may_be_first() {
    let create = mk(1, 10, Call::Create(1), Answer::Done(1));
    for answer in [NOTHING, seen(1)] {
        assert!(is_linear(&[create, mk(2, 3, Call::Get, answer)]));
    }
    // But what one has seen, nobody later may miss.
    assert!(!is_linear(&[create, mk(2, 3, Call::Get, seen(1)), mk(4, 5, Call::Get, NOTHING)]));
    assert!(is_linear(&[create, mk(2, 3, Call::Get, NOTHING), mk(4, 5, Call::Get, seen(1))]));
}

#[test]
fn of_two_writers_over_one_state_one_wins() {
    let create = mk(1, 2, Call::Create(1), Answer::Done(1));
    let both = |second| [create, mk(3, 9, update(1, 2), Answer::Done(2)), mk(4, 8, update(1, 3), second)];
    assert!(is_linear(&both(Answer::Refused)));
    assert!(!is_linear(&both(Answer::Done(3))));
    // Nobody lost, yet both were refused.
    let mut none = both(Answer::Refused);
    none[1].answer = Answer::Refused;
    assert!(!is_linear(&none));
}

#[test]
fn a_stale_read_is_found() {
    let writes = [mk(1, 2, Call::Create(1), Answer::Done(1)), mk(3, 4, update(1, 2), Answer::Done(2))];
    let with = |read| [writes[0], writes[1], read];
    assert!(!is_linear(&with(mk(5, 6, Call::Get, seen(1)))));
    assert!(is_linear(&with(mk(3, 6, Call::Get, seen(1)))));
}

#[test]
fn an_unknown_write_may_happen_later_or_never() {
    let start = [mk(1, 2, Call::Create(1), Answer::Done(1)), mk(3, 4, update(1, 2), LOST)];
    let then = |reads: &[Operation]| is_linear(&[&start, reads].concat());
    let (old, new) = (|at| mk(at, at + 1, Call::Get, seen(1)), |at| mk(at, at + 1, Call::Get, seen(2)));
    assert!(then(&[old(5), old(7)]), "never");
    assert!(then(&[new(5)]), "at once");
    assert!(then(&[old(5), old(7), new(9)]), "later");
    assert!(!then(&[new(5), old(7)]), "but not back again");
    assert!(then(&[old(5), mk(7, 8, update(1, 3), Answer::Done(3))]), "and then never");
    assert!(!then(&[mk(5, 6, update(1, 3), Answer::Done(3)), new(7)]), "once it is too late");
}

#[test]
fn an_unknown_write_of_a_dead_process_does_not_happen_after_it() {
    let write = mk(3, 4, Call::Create(1), Answer::Unknown(Some(10)));
    let read = |at, answer| mk(at, at + 1, Call::Get, answer);
    assert!(is_linear(&[write, read(5, NOTHING), read(9, seen(1))]));
    assert!(is_linear(&[write, read(11, seen(1))]), "before the end, seen after it");
    assert!(is_linear(&[write, read(11, NOTHING), read(13, NOTHING)]));
    assert!(!is_linear(&[write, read(11, NOTHING), read(13, seen(1))]));
}

#[test]
fn what_was_surely_not_done_is_never_seen() {
    let all = [mk(1, 2, Call::Create(1), Answer::NotDone), mk(3, 4, Call::Get, NOTHING)];
    assert!(is_linear(&all));
    assert!(!is_linear(&[all[0], mk(3, 4, Call::Get, seen(1))]));
}

#[test]
fn an_unknown_creation_happens_at_most_once() {
    let create = mk(1, 2, Call::Create(1), LOST);
    let delete = mk(5, 6, Call::Delete { from: 1 }, Answer::Done(2));
    assert!(is_linear(&[create, delete, mk(7, 8, Call::Get, NOTHING)]));
    assert!(!is_linear(&[create, delete, mk(7, 8, Call::Get, seen(1))]));
}

#[test]
fn a_removal_may_be_told_of_another_that_was_before_it() {
    let delete = |asked, answer| mk(asked, asked + 1, Call::Delete { from: 1 }, answer);
    let all = |answers: [Answer; 2]| History {
        operations: vec![
            mk(1, 2, Call::Create(1), Answer::Done(11)),
            delete(3, answers[0]),
            mk(5, 6, Call::Create(2), Answer::Done(13)),
            delete(7, answers[1]),
        ],
        ..History::default()
    };
    let is_linear = |answers| is_linear(&all(answers).of(NAME));
    assert!(is_linear([Answer::Done(12), Answer::Done(12)]));
    assert!(is_linear([LOST, Answer::Done(12)]));
    assert!(is_linear([Answer::Done(12), Answer::Refused]));
    // Without any other, it has to have done it itself.
    assert!(!is_linear([Answer::NotDone, Answer::Done(12)]));
    assert!(!is_linear([Answer::Refused, Answer::Done(12)]));
}

/// A hundred rounds of eight writers over each state, as a search without memory would never get through.
#[test]
fn long_histories_of_many_clients_are_judged() {
    let mut all = vec![mk(1, 2, Call::Create(1), Answer::Done(1))];
    for round in 1..100 {
        let begin = round * 100;
        for client in 0..8 {
            let tag = round * 10 + client;
            let from = if round == 1 { 1 } else { (round - 1) * 10 + 3 };
            let answer = if client == 3 { Answer::Done(tag) } else { Answer::Refused };
            let answer = if client == 5 { LOST } else { answer };
            all.push(mk(begin + client, begin + 50 + client, update(from, tag), answer));
        }
    }
    assert!(is_linear(&all));
    all.push(mk(100_000, 100_001, Call::Get, seen(983)));
    assert!(!is_linear(&all));
}

/// Two objects, one update, one removal, a list and a second watch.
fn mk_history() -> History {
    let on = |name, mut operation: Operation| {
        operation.name = name;
        operation
    };
    let told = |version, name, now, before| Told { version, name, now, before };
    let all = vec![
        told(11, 1, Some(1), None),
        told(12, 2, Some(2), None),
        told(13, 1, Some(3), Some(1)),
        told(14, 2, None, Some(2)),
    ];
    let states = BTreeMap::from([(1, State { tag: 3, version: 13 }), (2, State { tag: 2, version: 12 })]);
    History {
        operations: vec![
            on(1, mk(1, 2, Call::Create(1), Answer::Done(11))),
            on(2, mk(3, 4, Call::Create(2), Answer::Done(12))),
            on(1, mk(5, 6, update(1, 3), Answer::Done(13))),
            on(2, mk(9, 10, Call::Delete { from: 2 }, Answer::Done(14))),
        ],
        listings: vec![Listing { asked: 7, answered: 8, version: 13, fresh: true, at_least: 0, states }],
        watches: vec![
            Watched { after: 10, until: 14, told: all.clone() },
            Watched { after: 11, until: 13, told: all[1..3].to_vec() },
        ],
        breaches: vec![],
    }
}

#[test]
fn versions_lists_and_watches_have_to_agree() {
    assert_eq!(agree::faults(&mk_history()), Vec::<String>::new());
    type Wrong = fn(&mut History);
    let wrongs: [(&str, Wrong); 12] = [
        ("a version that goes back", |h| h.operations[3].answer = Answer::Done(12)),
        ("a version that another write has", |h| h.operations[2].answer = Answer::Done(11)),
        ("a write that nobody was told of", |h| {
            let _ = h.watches[0].told.pop();
        }),
        ("a write that nobody did", |h| {
            let _ = h.operations.remove(1);
        }),
        ("a write that was said not to have happened", |h| h.operations[2].answer = Answer::NotDone),
        ("an event that one watch missed", |h| {
            let _ = h.watches[1].told.remove(0);
        }),
        ("an event that came twice", |h| {
            let again = h.watches[1].told[1];
            h.watches[1].told.push(again);
        }),
        ("events that changed places", |h| h.watches[0].told.swap(0, 1)),
        ("a state before that was not", |h| h.watches[0].told[2].before = None),
        ("a list that lacks an object", |h| {
            let _ = h.listings[0].states.remove(&2);
        }),
        ("a list of two versions", |h| h.listings[0].states.get_mut(&1).unwrap().version = 11),
        ("a list that is older than asked for", |h| h.listings[0].at_least = 14),
    ];
    for (what, wrong) in wrongs {
        let mut history = mk_history();
        wrong(&mut history);
        assert!(!agree::faults(&history).is_empty(), "{what} was not found");
    }
}
