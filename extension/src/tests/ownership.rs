use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use super::*;

const SUBJECT: Subject<'_> = Subject { kind: "Infrastructure", namespace: Some("shoot--a--b"), name: "b" };
const LIMIT: Duration = Duration::from_secs(10);

fn quick() -> WatchdogTiming {
    let millis = Duration::from_millis;
    WatchdogTiming { interval: millis(5), timeout: millis(50), unknown_limit: millis(100) }
}

/// Answers in their order; the last one stays.
struct Scripted(Mutex<VecDeque<Option<bool>>>);

impl Scripted {
    fn new(answers: &[Option<bool>]) -> Self {
        Self(Mutex::new(answers.iter().copied().collect()))
    }
}

impl Ownership for Scripted {
    fn check<'a>(&'a self, _: Subject<'a>) -> BoxFuture<'a, Result<bool, OwnershipUnknown>> {
        let mut answers = self.0.lock();
        let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        let answer = next.flatten().ok_or_else(|| OwnershipUnknown("no DNS".to_owned()));
        Box::pin(std::future::ready(answer))
    }
}

struct Silent;

impl Ownership for Silent {
    fn check<'a>(&'a self, _: Subject<'a>) -> BoxFuture<'a, Result<bool, OwnershipUnknown>> {
        Box::pin(std::future::pending())
    }
}

/// Sets the flag when it is dropped.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn endless(dropped: &AtomicBool) {
    let _guard = OnDrop(dropped);
    std::future::pending::<()>().await;
}

async fn guarded(ownership: &dyn Ownership) -> (Result<(), NotOwner>, bool) {
    let dropped = AtomicBool::new(false);
    let guarded = while_owner(ownership, quick(), SUBJECT, endless(&dropped));
    let outcome = timeout(LIMIT, guarded).await.expect("the watchdog ends it");
    (outcome, dropped.load(Ordering::Relaxed))
}

#[tokio::test]
async fn operation_does_not_begin_without_ownership() {
    for (answer, expected) in
        [(Some(false), NotOwner::Lost), (None, NotOwner::Unknown(OwnershipUnknown("no DNS".to_owned())))]
    {
        let began = AtomicBool::new(false);
        let operation = async { began.store(true, Ordering::Relaxed) };
        let outcome = while_owner(&Scripted::new(&[answer]), quick(), SUBJECT, operation).await;
        assert_eq!(outcome, Err(expected));
        assert!(!began.load(Ordering::Relaxed), "it began");
    }
}

#[tokio::test]
async fn running_operation_is_dropped_when_ownership_is_lost() {
    let (outcome, dropped) = guarded(&Scripted::new(&[Some(true), Some(true), Some(false)])).await;
    assert_eq!((outcome, dropped), (Err(NotOwner::Lost), true));
}

#[tokio::test]
async fn unknown_owner_is_tolerated_for_a_while_only() {
    let began = Instant::now();
    let (outcome, dropped) = guarded(&Scripted::new(&[Some(true), None])).await;
    assert!(matches!(outcome, Err(NotOwner::Unknown(_))) && dropped, "{outcome:?}");
    assert!(began.elapsed() >= quick().unknown_limit, "it ended after {:?}", began.elapsed());

    let answers = [Some(true), None, None, Some(true)];
    let operation = sleep(4 * quick().unknown_limit);
    let outcome = while_owner(&Scripted::new(&answers), quick(), SUBJECT, operation).await;
    assert_eq!(outcome, Ok(()), "a short outage ended the operation");
}

#[tokio::test]
async fn check_without_an_answer_leaves_the_owner_unknown() {
    let outcome = timeout(LIMIT, while_owner(&Silent, quick(), SUBJECT, async {})).await.expect("an end");
    assert!(matches!(outcome, Err(NotOwner::Unknown(_))), "{outcome:?}");
}

#[tokio::test]
async fn watch_channel_ends_the_operation_before_the_next_interval() {
    let (sender, receiver) = watch::channel(true);
    let slow = WatchdogTiming { interval: 100 * LIMIT, ..quick() };
    let ownership = WatchedOwnership(receiver);
    let operation = async {
        sender.send_replace(false);
        std::future::pending::<()>().await;
    };
    let outcome = timeout(LIMIT, while_owner(&ownership, slow, SUBJECT, operation)).await;
    assert_eq!(outcome.expect("the watch ends it"), Err(NotOwner::Lost));
}

#[tokio::test]
async fn watch_channel_without_a_sender_leaves_the_owner_unknown() {
    let (sender, receiver) = watch::channel(true);
    drop(sender);
    let outcome = while_owner(&WatchedOwnership(receiver), quick(), SUBJECT, async {}).await;
    assert!(matches!(outcome, Err(NotOwner::Unknown(_))), "{outcome:?}");
}
