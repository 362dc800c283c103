//! Whether the operations on one object could have happened one at a time, each at some moment between its call and its
//! answer: the search of Wing and Gong, which remembers where it has been as Lowe taught it.
//!
//! A write of unknown outcome may be left out, and may happen at any moment after its call. Nothing in here does I/O.

use std::{collections::HashSet, fmt};

use super::record::{Answer, Call, Operation, State, Tag, Time};

/// Configurations to visit at most. Histories of a test need a thousandth of that.
const MOST: usize = 4_000_000;
/// Operations to show where there is no order.
const SHOWN: usize = 40;

/// Why there is no such order.
#[derive(Debug)]
pub struct Stuck {
    /// How many operations the best order holds.
    pub placed: usize,
    /// What the object is after these.
    pub holds: Option<Tag>,
    /// Those of which none can come next.
    pub open: Vec<Operation>,
    /// What was asked before those were answered, the last of it: to find out by hand why.
    pub asked: Vec<Operation>,
    /// Whether the search gave up, so that there may be an order after all.
    pub gave_up: bool,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.gave_up { "the search gave up" } else { "there is none" };
        let (placed, holds, open) = (self.placed, self.holds, &self.open);
        write!(
            f,
            "{why}; after {placed} operations the object is {holds:?}, and none can follow of {open:?}"
        )?;
        self.asked.iter().try_for_each(|operation| write!(f, "\n  asked: {operation:?}"))
    }
}

/// What an object is, as far as the order of operations goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Model {
    now: Option<Tag>,
}

impl Model {
    /// The object after a write that happens.
    fn after(self, call: Call) -> Option<Self> {
        match (call, self.now) {
            (Call::Create(tag), None) => Some(Self { now: Some(tag) }),
            (Call::Update { from, tag }, Some(now)) if from == now => Some(Self { now: Some(tag) }),
            (Call::Delete { from }, Some(now)) if from == now => Some(Self { now: None }),
            _ => None,
        }
    }

    /// The object after an operation with this answer; `None`: it cannot happen here.
    fn step(self, operation: &Operation) -> Option<Self> {
        match (operation.answer, operation.call) {
            (Answer::Seen(seen), _) => (self.now == seen.map(|state: State| state.tag)).then_some(self),
            (Answer::Refused, Call::Create(_)) => self.now.is_some().then_some(self),
            (Answer::Refused, Call::Update { from, .. } | Call::Delete { from }) => {
                (self.now != Some(from)).then_some(self)
            }
            (Answer::Refused | Answer::NotDone, _) => Some(self),
            (Answer::Done(_) | Answer::Unknown(_), call) => self.after(call),
        }
    }
}

/// How far the search is: which operations have happened, and what the object is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct SearchState {
    model: Model,
    /// All sure operations before this one have happened.
    first: usize,
    /// Sure ones after it that have happened, ascending.
    ahead: Vec<u32>,
    /// Unknown ones that have happened, ascending.
    taken: Vec<u32>,
    /// The latest call among all that have happened.
    latest: Time,
}

struct Search {
    sure: Vec<Operation>,
    unknown: Vec<Operation>,
}

/// Finds an order for operations on one object.
pub fn check(operations: &[Operation]) -> Result<(), Stuck> {
    let mut sure = operations.to_vec();
    sure.retain(|operation| operation.answer != Answer::NotDone);
    sure.sort_by_key(|operation| operation.asked);
    let unknown = sure.extract_if(.., |operation| matches!(operation.answer, Answer::Unknown(_))).collect();
    Search { sure, unknown }.run()
}

impl Search {
    fn run(&self) -> Result<(), Stuck> {
        let (mut stack, mut visited) = (vec![SearchState::default()], HashSet::new());
        let mut best = SearchState::default();
        while let Some(place) = stack.pop() {
            if place.first == self.sure.len() {
                return Ok(());
            }
            if place.first + place.ahead.len() > best.first + best.ahead.len() {
                best = place.clone();
            }
            let next = self.next(&place);
            stack.extend(next.into_iter().filter(|place| visited.insert(place.clone())));
            if visited.len() > MOST {
                return Err(self.stuck(&best, true));
            }
        }
        Err(self.stuck(&best, false))
    }

    fn stuck(&self, best: &SearchState, gave_up: bool) -> Stuck {
        let open: Vec<_> = self.open(best).into_iter().map(|index| self.sure[index]).collect();
        let until = open.iter().map(|operation| operation.answered).max().unwrap_or(Time::MAX);
        let mut asked: Vec<_> = self.sure.iter().chain(&self.unknown).copied().collect();
        asked.retain(|operation| operation.asked < until);
        asked.sort_by_key(|operation| operation.asked);
        let asked = asked.split_off(asked.len().saturating_sub(SHOWN));
        Stuck { placed: best.first + best.ahead.len(), holds: best.model.now, open, asked, gave_up }
    }

    /// The sure operations that may come next: called before any other that is left was answered.
    fn open(&self, place: &SearchState) -> Vec<usize> {
        let (mut open, mut answered) = (Vec::new(), Time::MAX);
        for (index, operation) in self.sure.iter().enumerate().skip(place.first) {
            if operation.asked > answered {
                break;
            }
            if place.ahead.binary_search(&(index as u32)).is_err() {
                answered = answered.min(operation.answered);
                open.push(index);
            }
        }
        open.retain(|&index| self.sure[index].asked < answered);
        open
    }

    fn next(&self, place: &SearchState) -> Vec<SearchState> {
        let open = self.open(place);
        let until = open.iter().map(|&index| self.sure[index].answered).min().unwrap_or(Time::MAX);
        let possible = |operation: &Operation| match operation.answer {
            Answer::Unknown(Some(end)) => place.latest <= end,
            _ => true,
        };
        let pending: Vec<usize> = (0..self.unknown.len())
            .filter(|&index| place.taken.binary_search(&(index as u32)).is_err())
            .filter(|&index| possible(&self.unknown[index]) && self.unknown[index].asked < until)
            .collect();
        let mut next = Vec::new();
        for index in pending.iter().copied() {
            let operation = &self.unknown[index];
            if let Some(model) = place.model.after(operation.call).filter(|model| *model != place.model) {
                next.push(place.with_unknown(index, model, operation.asked));
            }
        }
        for index in open {
            let operation = &self.sure[index];
            let Some(model) = place.model.step(operation) else { continue };
            let after = self.with_sure(place, index, model);
            // What changes nothing and is possible now need not wait, unless it made something too late.
            let harmless = pending.iter().all(|&other| match self.unknown[other].answer {
                Answer::Unknown(Some(end)) => operation.asked <= end,
                _ => true,
            });
            if model == place.model && harmless {
                return vec![after];
            }
            next.push(after);
        }
        next
    }

    fn with_sure(&self, place: &SearchState, index: usize, model: Model) -> SearchState {
        let mut after =
            SearchState { model, latest: place.latest.max(self.sure[index].asked), ..place.clone() };
        let at = after.ahead.partition_point(|&other| (other as usize) < index);
        after.ahead.insert(at, index as u32);
        while after.ahead.first() == Some(&(after.first as u32)) {
            after.ahead.remove(0);
            after.first += 1;
        }
        after
    }
}

impl SearchState {
    fn with_unknown(&self, index: usize, model: Model, asked: Time) -> Self {
        let mut after = Self { model, latest: self.latest.max(asked), ..self.clone() };
        let at = after.taken.partition_point(|&other| (other as usize) < index);
        after.taken.insert(at, index as u32);
        after
    }
}
