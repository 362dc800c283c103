//! Which keys objects depend on, and writing again those that depend on an old one.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use super::{
    Store,
    types::{Key, ListRequest, Object, Scope},
};
use crate::{Error, Result};

/// Objects looked at at once.
const PAGE: usize = 500;
/// Objects written at once: backends commit together what comes together.
const AT_ONCE: usize = 64;
/// How much earlier than its turn a write may begin. What begins later than that puts off the turns behind it.
const SLACK: Duration = Duration::from_millis(2);
/// How often an object is tried again that somebody else writes at the same time.
const TRIES: usize = 5;

/// How many objects depend on a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    /// All objects that depend on it.
    pub objects: u64,
    /// Those that would be wrapped by another key if they were written now.
    pub stale: u64,
}

/// What a pass of [`Store::rewrite`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Objects that were looked at, also those that do not open.
    pub seen: u64,
    /// Objects whose data key was wrapped anew.
    pub written: u64,
    /// Objects that could not be opened or written.
    pub failed: u64,
}

impl Store {
    /// How many objects of a scope depend on which key, by [`Object::wrapped_by`]; `unreadable` stands for those that do not open.
    ///
    /// # Errors
    /// As of [`Store::list`].
    pub async fn key_use(&self, scope: &Scope) -> Result<BTreeMap<String, KeyUse>> {
        let mut uses: BTreeMap<String, KeyUse> = BTreeMap::new();
        let mut after = None;
        loop {
            let page = self.list(page(scope, after)).await?;
            for object in &page.objects {
                let (key, stale) = match object {
                    Ok(object) => (object.wrapped_by(), object.stale),
                    Err(_) => ("unreadable".to_owned(), false),
                };
                let count = uses.entry(key).or_default();
                count.objects += 1;
                count.stale += u64::from(stale);
            }
            after = page.next;
            if after.is_none() {
                return Ok(uses);
            }
        }
    }

    /// Writes every [stale](Object::stale) object of a scope again, so that nothing depends on an old key: a data key is wrapped
    /// anew, payload is not touched. What is written has another version afterwards, and watches see it. Any number of these may
    /// run beside servers; one that was broken off has less to do when it runs again.
    ///
    /// `each`: the time from the begin of one write to that of the next, on average. `progress` is called after each page.
    ///
    /// # Errors
    /// As of [`Store::list`]. What goes wrong with one object is counted, and told in the log.
    pub async fn rewrite(
        &self,
        scope: &Scope,
        each: Duration,
        mut progress: impl FnMut(Rewritten),
    ) -> Result<Rewritten> {
        let (mut done, mut pace) = (Rewritten::default(), Pace::new(each));
        let mut found = Some(self.list(page(scope, None)).await?);
        while let Some(page_now) = found.take() {
            let stale = done.look_at(page_now.objects);
            // As of now, not of one version: this may take longer than history is kept, and what is new is not stale.
            let following = async {
                match page_now.next {
                    Some(after) => self.list(page(scope, Some(after))).await.map(Some),
                    None => Ok(None),
                }
            };
            let ((), following) = tokio::join!(self.wrap_all_again(stale, &mut pace, &mut done), following);
            progress(done);
            found = following?;
        }
        Ok(done)
    }

    async fn wrap_all_again(&self, stale: Vec<Object>, pace: &mut Pace, done: &mut Rewritten) {
        let paced = stream::iter(stale).then(|object| {
            let turn = pace.turn(Instant::now());
            async move {
                if let Some(turn) = turn {
                    sleep_until(turn).await;
                }
                object
            }
        });
        let written = paced.map(async |object| (object.key.clone(), self.wrap_again(object).await));
        let mut written = std::pin::pin!(written.buffer_unordered(AT_ONCE));
        while let Some((key, result)) = written.next().await {
            done.count(&key, result);
        }
    }

    /// Whether it was written; somebody else may have done so.
    async fn wrap_again(&self, object: Object) -> Result<bool> {
        let mut now = object;
        for _ in 0..TRIES {
            match self.update_head(&now, now.meta.clone(), now.summary.clone()).await {
                Ok(_) => return Ok(true),
                Err(Error::Conflict) => match self.get(&now.key).await? {
                    Some(newer) if newer.stale => now = newer,
                    Some(_) | None => return Ok(false),
                },
                Err(error) => return Err(error),
            }
        }
        Err(Error::Conflict)
    }
}

/// Gives each write the time at which it may begin, so that on average one begins in each `each`.
struct Pace {
    each: Duration,
    next: Instant,
}

impl Pace {
    fn new(each: Duration) -> Self {
        Self { each, next: Instant::now() }
    }

    /// When one more may begin: at once, or at a later time. Timers count milliseconds: one that is early by little begins at once, and one
    /// that is late by little does not put off those behind it.
    fn turn(&mut self, now: Instant) -> Option<Instant> {
        let turn = self.next.max(now.checked_sub(SLACK).unwrap_or(now));
        self.next = turn + self.each;
        (turn > now + SLACK).then_some(turn)
    }
}

impl Rewritten {
    /// Gives the objects that are to be written.
    fn look_at(&mut self, objects: Vec<Result<Object>>) -> Vec<Object> {
        let mut stale = Vec::new();
        for object in objects {
            self.seen += 1;
            match object {
                Ok(object) if !object.stale => {}
                Ok(object) => stale.push(object),
                Err(error) => {
                    tracing::error!(%error, "an object does not open");
                    self.failed += 1;
                }
            }
        }
        stale
    }

    fn count(&mut self, key: &Key, result: Result<bool>) {
        match result {
            Ok(written) => self.written += u64::from(written),
            Err(error) => {
                tracing::error!(%key, %error, "an object could not be written again");
                self.failed += 1;
            }
        }
    }
}

fn page(scope: &Scope, after: Option<Key>) -> ListRequest {
    ListRequest { after, limit: PAGE, ..ListRequest::all(scope.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the first turn to the last one, by timers that are late by up to a millisecond.
    fn time_of(turns: u32, each: Duration) -> Duration {
        let begun = Instant::now();
        let (mut now, mut pace) = (begun, Pace { each, next: begun });
        for _ in 0..turns {
            if let Some(turn) = pace.turn(now) {
                let millis = turn.duration_since(begun).as_secs_f64() * 1000.0;
                now = begun + Duration::from_millis(millis.ceil() as u64);
            }
        }
        now - begun
    }

    #[test]
    fn writes_begin_at_their_rate_even_where_timers_cannot_tell_them_apart() {
        for (turns, each) in [(11, Duration::from_millis(100)), (10_001, Duration::from_micros(10))] {
            let (took, whole) = (time_of(turns, each), each * (turns - 1));
            assert!(took + SLACK >= whole && took <= whole + SLACK, "{took:?}, not {whole:?}");
        }
    }
}
