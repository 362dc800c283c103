//! The newest revision of the backend: one question at a time, however many ask.
//!
//! A consistent list asks for it once, and a thousand informers start in the same second. Whoever comes while a question is under
//! way waits for the next one, and all who wait share its answer: so an answer is never older than the call it is given to.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use crate::{Result, backend::Revision};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    /// How many questions have begun.
    begun: AtomicU64,
    last: Mutex<Option<Answer>>,
}

#[derive(Debug)]
struct Answer {
    /// Counted by `begun`.
    number: u64,
    asked: Instant,
    result: Result<Revision>,
}

impl Revisions {
    /// The answer to a question that begins after this call. `ask` is called at most once. A call may be dropped at any time:
    /// the next one in turn asks then.
    pub(crate) async fn newest<F: Future<Output = Result<Revision>>>(
        &self,
        ask: impl FnOnce() -> F,
    ) -> Result<Revision> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        match &*last {
            Some(answer) if answer.number > before => answer.result.clone(),
            _ => self.ask(&mut last, ask).await,
        }
    }

    /// An answer to a question that began at most so long ago.
    pub(crate) async fn recent<F: Future<Output = Result<Revision>>>(
        &self,
        age: Duration,
        ask: impl FnOnce() -> F,
    ) -> Result<Revision> {
        let mut last = self.last.lock().await;
        match &*last {
            Some(answer) if answer.asked.elapsed() < age => answer.result.clone(),
            _ => self.ask(&mut last, ask).await,
        }
    }

    async fn ask<F: Future<Output = Result<Revision>>>(
        &self,
        last: &mut Option<Answer>,
        ask: impl FnOnce() -> F,
    ) -> Result<Revision> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let asked = Instant::now();
        let result = ask().await;
        *last = Some(Answer { number, asked, result: result.clone() });
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn those_who_come_during_a_question_share_the_next_one() {
        let (revisions, gate) = (Arc::new(Revisions::default()), Arc::new(Semaphore::new(0)));
        let asked = Arc::new(AtomicU64::new(0));
        let call = || {
            let (revisions, gate, asked) = (revisions.clone(), gate.clone(), asked.clone());
            async move {
                let ask = || async {
                    let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
                    gate.acquire().await.expect("open").forget();
                    Ok(Revision(number))
                };
                revisions.newest(ask).await.expect("an answer")
            }
        };
        let mut calls: Vec<_> = (0..100).map(|_| Box::pin(call())).collect();
        for call in &mut calls {
            assert!(futures::poll!(call).is_pending());
        }
        gate.add_permits(2);
        let answers = futures::future::join_all(calls).await;
        // The question of the first was under way when the others came: theirs is the next.
        assert_eq!(answers[0], Revision(1));
        assert!(answers[1..].iter().all(|answer| *answer == Revision(2)), "{answers:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_leaves_the_question_to_the_next() {
        let revisions = Revisions::default();
        let mut first = Box::pin(revisions.newest(std::future::pending));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(revisions.newest(|| async { Ok(Revision(7)) }));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(second.await.expect("an answer"), Revision(7));
    }

    #[tokio::test]
    async fn who_only_waits_for_progress_takes_a_recent_answer() {
        let revisions = Revisions::default();
        let hour = Duration::from_secs(3600);
        let first = revisions.recent(hour, || async { Ok(Revision(1)) }).await.expect("an answer");
        let second = revisions.recent(hour, || async { Ok(Revision(2)) }).await.expect("an answer");
        let third = revisions.recent(Duration::ZERO, || async { Ok(Revision(3)) }).await.expect("an answer");
        assert_eq!((first, second, third), (Revision(1), Revision(1), Revision(3)));
    }
}
