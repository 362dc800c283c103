//! What a stream of watches has come to: what it takes to begin it anew elsewhere.

use std::collections::BTreeMap;

use hyper::body::Bytes;

use super::wire::{self, Create, Malformed, Request, Response};

/// Watches of one stream, more than which are refused.
const MOST: usize = 10_000;

/// The watches of a stream.
#[derive(Debug, Default)]
pub(super) struct Record {
    watches: BTreeMap<i64, Watch>,
    /// Those that etcd has not told of yet, in the order in which it will.
    asked: Vec<i64>,
    last_id: i64,
    /// A part of a revision was passed on, and another part was not yet.
    torn: bool,
    /// Something was passed on that was not read: nobody knows where to go on.
    blind: bool,
}

#[derive(Debug)]
struct Watch {
    create: Create,
    state: State,
    cancelled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client has not heard of it.
    Asked,
    /// The client has everything before this revision.
    Follows { next: i64 },
    /// The same, and it was asked for again.
    AskedAgain { next: i64 },
}

/// More watches than one stream may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Record {
    /// What to ask etcd for, for what a client asks. Every watch gets an id that is its own for as long as the stream lives.
    pub(super) fn ask(&mut self, message: Bytes) -> Result<Bytes, TooMany> {
        match Request::read(&message) {
            Ok(Request::Create(create)) => {
                if self.watches.len() >= MOST {
                    return Err(TooMany);
                }
                let id = if create.watch_id == 0 { self.last_id + 1 } else { create.watch_id };
                // etcd refuses a second watch of an id; the first one goes on.
                if self.watches.contains_key(&id) {
                    self.asked.push(id);
                    return Ok(message);
                }
                self.last_id = self.last_id.max(id);
                let asked = create.write(id, None);
                self.asked.push(id);
                self.watches.insert(id, Watch { create, state: State::Asked, cancelled: false });
                Ok(asked.into())
            }
            Ok(Request::Cancel(id)) => {
                if let Some(watch) = self.watches.get_mut(&id) {
                    watch.cancelled = true;
                }
                Ok(message)
            }
            // etcd judges what is not a request.
            Ok(Request::Other) | Err(Malformed) => Ok(message),
        }
    }

    /// Notes what etcd says; whether the client is to hear of it.
    pub(super) fn hear(&mut self, message: &[u8]) -> bool {
        let Ok(response) = Response::read(message) else {
            self.blind = true;
            return true;
        };
        if response.created {
            return self.created(response);
        }
        if response.canceled {
            self.watches.remove(&response.watch_id);
            return true;
        }
        self.torn = response.fragment;
        match (response.last_event, self.watches.get_mut(&response.watch_id)) {
            (Some(last), Some(watch)) => watch.reach(last + 1),
            (None, Some(watch)) => watch.reach(response.revision + 1),
            // Progress of all.
            (None, None) if response.watch_id < 0 => {
                self.watches.values_mut().for_each(|watch| watch.reach(response.revision + 1));
            }
            (_, None) => {}
        }
        true
    }

    fn created(&mut self, response: Response) -> bool {
        let id = if self.asked.is_empty() { response.watch_id } else { self.asked.remove(0) };
        if response.canceled {
            if self.watches.get(&id).is_some_and(|watch| watch.state == State::Asked) {
                self.watches.remove(&id);
            }
            return true;
        }
        let Some(watch) = self.watches.get_mut(&id) else { return true };
        match watch.state {
            State::AskedAgain { next } => {
                watch.state = State::Follows { next };
                false
            }
            State::Asked | State::Follows { .. } => {
                // From now on, or from where the client said; the client has nothing before either.
                let start = watch.create.start_revision;
                watch.state = State::Follows { next: if start > 0 { start } else { response.revision + 1 } };
                true
            }
        }
    }

    /// Something passes that is too large to be read.
    pub(super) fn miss(&mut self) {
        self.blind = true;
    }

    /// What to ask another member for, so that the client notices nothing; nothing where that is not known.
    pub(super) fn again(&mut self) -> Option<Vec<Bytes>> {
        if self.torn || self.blind {
            return None;
        }
        let mut requests = Vec::new();
        self.asked.clear();
        for (id, watch) in &mut self.watches {
            let next = match watch.state {
                State::Asked => None,
                State::Follows { next } | State::AskedAgain { next } => {
                    watch.state = State::AskedAgain { next };
                    Some(next)
                }
            };
            self.asked.push(*id);
            requests.push(watch.create.write(*id, next).into());
            if watch.cancelled {
                requests.push(wire::cancel(*id).into());
            }
        }
        Some(requests)
    }
}

impl Watch {
    fn reach(&mut self, revision: i64) {
        if let State::Follows { next } = &mut self.state {
            *next = revision.max(*next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(id: i64, start: i64) -> Bytes {
        let body = Bytes::from_static(&[0x0a, 1, b'k']);
        let create = Create { body, watch_id: id, start_revision: start };
        Bytes::from(create.write(id, Some(start)))
    }

    fn response(revision: i64, id: i64, more: &[u8]) -> Vec<u8> {
        let mut header = Vec::new();
        wire::put(&mut header, 3, revision);
        let mut message = vec![0x0a, header.len() as u8];
        message.extend(header);
        wire::put(&mut message, 2, id);
        message.extend(more);
        message
    }

    fn event(revision: u8) -> Vec<u8> {
        vec![0x5a, 7, 0x12, 5, 0x0a, 1, b'k', 0x18, revision]
    }

    const CREATED: &[u8] = &[0x18, 1];
    const CANCELED: &[u8] = &[0x20, 1];
    const FRAGMENT: &[u8] = &[0x38, 1];

    fn asked(messages: &[Bytes]) -> Vec<(i64, i64)> {
        let read = |message: &Bytes| match Request::read(message) {
            Ok(Request::Create(create)) => (create.watch_id, create.start_revision),
            Ok(Request::Cancel(id)) => (id, -1),
            other => panic!("{other:?}"),
        };
        messages.iter().map(read).collect()
    }

    fn confirm(record: &mut Record, revision: i64) {
        for id in [1, 2, 9] {
            record.hear(&response(revision, id, CREATED));
        }
    }

    #[test]
    fn watches_go_on_where_they_were() {
        let mut record = Record::default();
        for (id, start) in [(0, 0), (0, 5), (9, 0)] {
            record.ask(create(id, start)).expect("few");
        }
        for id in [1, 2] {
            assert!(record.hear(&response(20, id, CREATED)));
        }
        // The first has an event, the second nothing yet, the third was not confirmed.
        assert!(record.hear(&response(30, 1, &event(22))));
        assert_eq!(asked(&record.again().expect("known")), [(1, 23), (2, 5), (9, 0)]);
        // Confirmed by the other member: that is news only of the third.
        assert!(!record.hear(&response(40, 1, CREATED)));
        // Broken again in the middle of that.
        assert_eq!(asked(&record.again().expect("known")), [(1, 23), (2, 5), (9, 0)]);
        let news: Vec<bool> = [1, 2, 9].map(|id| record.hear(&response(40, id, CREATED))).into();
        assert_eq!(news, [false, false, true]);
        // Progress: of one, and of all.
        record.hear(&response(50, 2, &[]));
        assert_eq!(asked(&record.again().expect("known")), [(1, 23), (2, 51), (9, 41)]);
        confirm(&mut record, 50);
        record.hear(&response(60, -1, &[]));
        record.ask(wire::cancel(2).into()).expect("few");
        assert_eq!(asked(&record.again().expect("known")), [(1, 61), (2, 61), (2, -1), (9, 61)]);
        confirm(&mut record, 60);
        record.hear(&response(60, 2, CANCELED));
        record.ask(create(0, 0)).expect("few");
        assert_eq!(asked(&record.again().expect("known")), [(1, 61), (9, 61), (10, 0)]);
    }

    #[test]
    fn refused_watches_are_forgotten() {
        let mut record = Record::default();
        record.ask(create(0, 0)).expect("few");
        record.ask(create(1, 7)).expect("few");
        record.hear(&response(20, 1, CREATED));
        // The second has the id of the first.
        assert!(record.hear(&response(20, -1, &[CREATED, CANCELED].concat())));
        assert_eq!(asked(&record.again().expect("known")), [(1, 21)]);
    }

    #[test]
    fn nobody_goes_on_in_the_middle_of_a_revision_or_after_what_was_not_read() {
        let mut record = Record::default();
        record.ask(create(0, 1)).expect("few");
        record.hear(&response(20, 1, CREATED));
        record.hear(&response(20, 1, &[FRAGMENT, &event(4)].concat()));
        assert!(record.again().is_none());
        record.hear(&response(20, 1, &event(4)));
        assert_eq!(asked(&record.again().expect("known")), [(1, 5)]);
        record.miss();
        assert!(record.again().is_none());
    }

    #[test]
    fn there_is_an_end_of_watches() {
        let mut record = Record::default();
        for _ in 0..MOST {
            record.ask(create(0, 1)).expect("not too many");
        }
        assert_eq!(record.ask(create(0, 1)), Err(TooMany));
    }
}
