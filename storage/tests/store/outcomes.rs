//! Where the backend does not know whether a write happened, the store finds out.

use repot_storage::Error;

use super::{
    spy::{Fate, Spy},
    *,
};

on_every_backend! {
    recognises_its_own_writes
    sends_lost_writes_again
    tells_a_lost_race_from_a_won_one
    gives_up_where_nothing_answers
    says_nothing_was_done_where_nothing_was
    an_update_that_fails_takes_nothing_away
    takes_no_earlier_removal_for_its_own
    what_was_answered_does_not_happen_later
    finds_what_a_full_backend_did_all_the_same
    a_full_backend_changes_nothing
    a_full_backend_does_not_end_the_doubt_about_an_earlier_try
    a_commit_in_a_store_that_went_back_takes_nothing_away
    a_record_that_cannot_be_opened_leaves_the_outcome_open
    a_write_that_was_delivered_twice_is_done
    a_write_that_was_delivered_twice_and_replaced_in_between_is_done
}

async fn open(lab: &Lab) -> (Arc<Spy>, Store) {
    let spy = Spy::new(lab).await;
    let store = Store::open(spy.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    (spy, store)
}

async fn all_writes_under(lab: &Lab, fates: &[Fate]) {
    let (spy, store) = open(lab).await;
    for size in [100, 300_000, 5 << 20] {
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        spy.fates(fates);
        let created = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        assert_eq!(store.get(&key).await.unwrap().unwrap().version, created.version);
        spy.fates(fates);
        let updated = store.update(&created, mk_draft(uid, "2", vec![mk_noise(2, size)])).await.unwrap();
        let read = store.get(&key).await.unwrap().unwrap();
        assert_eq!((read.version, label(&read)), (updated.version, "2"));
        assert!(store.payload_bytes(&updated).await.unwrap() == mk_noise(2, size));
        spy.fates(fates);
        let removed = store.delete(&updated).await.unwrap();
        assert!(removed.version > updated.version);
        assert!(store.get(&key).await.unwrap().is_none());
    }
    store.close().await;
}

async fn recognises_its_own_writes(lab: &Lab) {
    all_writes_under(lab, &[Fate::Unanswered]).await;
}

async fn sends_lost_writes_again(lab: &Lab) {
    all_writes_under(lab, &[Fate::Lost, Fate::Lost]).await;
    all_writes_under(lab, &[Fate::Lost, Fate::Unanswered]).await;
}

async fn tells_a_lost_race_from_a_won_one(lab: &Lab) {
    let (spy, store) = open(lab).await;
    let (key, uid) = (mk_key("a"), Uuid::from_u128(1));
    let first = store.create(&key, mk_draft(uid, "first", vec![])).await.unwrap();
    // Somebody else wins while ours is lost.
    spy.fates(&[Fate::Held, Fate::Lost]);
    let (writer, base) = (store.clone(), first.clone());
    let theirs = tokio::spawn(async move { writer.update(&base, mk_draft(uid, "theirs", vec![])).await });
    spy.waiting().await;
    let (writer, base) = (store.clone(), first.clone());
    let ours = tokio::spawn(async move { writer.update(&base, mk_draft(uid, "ours", vec![])).await });
    // Ours has been sent and lost once; it is sent again, and one of the two wins.
    spy.release();
    let (theirs, ours) = (theirs.await.unwrap(), ours.await.unwrap());
    assert!(theirs.is_ok() != ours.is_ok(), "{theirs:?} {ours:?}");
    let won = theirs.or(ours).unwrap();
    let now = store.get(&key).await.unwrap().unwrap();
    assert_eq!((now.version, label(&now)), (won.version, label(&won)));
    // Ours wins unanswered, and is replaced before anybody looks.
    let replaced = overtake(&spy, &store, &now).await;
    assert!(replaced.version < store.get(&key).await.unwrap().unwrap().version);
    assert_eq!(label(&replaced), "mine");
    store.close().await;
}

/// The write happens, is replaced by another, and only then its writer learns that it knows nothing.
async fn overtake(spy: &Arc<Spy>, store: &Store, base: &Object) -> Object {
    spy.fates(&[Fate::HeldUnanswered]);
    let (writer, base) = (store.clone(), base.clone());
    let uid = base.uid;
    let mine = tokio::spawn(async move { writer.update(&base, mk_draft(uid, "mine", vec![])).await });
    spy.waiting().await;
    let now = store.get(&mk_key("a")).await.unwrap().unwrap();
    store.update(&now, mk_draft(uid, "over it", vec![])).await.unwrap();
    spy.release();
    mine.await.unwrap().unwrap()
}

/// The second answer says that a comparison does not hold: the first delivery keeps it from holding.
async fn a_write_that_was_delivered_twice_is_done(lab: &Lab) {
    for size in [100, 300_000, 3 << 20] {
        let (spy, store) = open(lab).await;
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        spy.fates(&[Fate::Twice]);
        let created = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        spy.fates(&[Fate::Twice]);
        let updated = store.update(&created, mk_draft(uid, "2", vec![mk_noise(2, size)])).await.unwrap();
        // Waits for all that the store does in the background.
        store.close().await;
        let (spy, store) = open(lab).await;
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!((now.version, label(&now)), (updated.version, "2"));
        assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(2, size), "{size}");
        // A removal leaves nothing by which its author could know it.
        spy.fates(&[Fate::Twice]);
        let removed = store.delete(&now).await;
        assert!(matches!(removed, Err(Error::Conflict)), "{removed:?}");
        assert!(store.get(&key).await.unwrap().is_none());
        store.close().await;
    }
}

/// Then the record is somebody else's, and only its history tells.
async fn a_write_that_was_delivered_twice_and_replaced_in_between_is_done(lab: &Lab) {
    for size in [100, 300_000, 3 << 20] {
        let (spy, store) = open(lab).await;
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        let first = store.create(&key, mk_draft(uid, "first", vec![mk_noise(1, size)])).await.unwrap();
        spy.fates(&[Fate::TwiceHeld]);
        let (writer, draft) = (store.clone(), mk_draft(uid, "mine", vec![mk_noise(2, size)]));
        let mine = tokio::spawn(async move { writer.update(&first, draft).await });
        spy.waiting().await;
        // Another head over the same payload: it names the chunks of the write that does not know yet what became of it.
        let now = store.get(&key).await.unwrap().unwrap();
        let over = store.update_head(&now, "meta over it".into(), "summary".into()).await.unwrap();
        spy.release();
        let mine = mine.await.unwrap().unwrap();
        assert_eq!((mine.version, label(&mine)), (now.version, "mine"));
        store.close().await;
        let (_, store) = open(lab).await;
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!((now.version, label(&now)), (over.version, "over it"));
        assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(2, size), "{size}");
        store.close().await;
    }
}

/// Also where the transaction happens under other tries, and where its answer is the last of several.
async fn finds_what_a_full_backend_did_all_the_same(lab: &Lab) {
    all_writes_under(lab, &[Fate::FullDone]).await;
    all_writes_under(lab, &[Fate::Lost, Fate::FullDone]).await;
}

/// Of a write that a full backend refuses nothing is left, and the state before is whole.
async fn a_full_backend_changes_nothing(lab: &Lab) {
    let (spy, store) = open(lab).await;
    for size in [100, 300_000, 5 << 20] {
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        let is_full = |refused: Result<Object, Error>| {
            assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}")
        };
        spy.fates(&[Fate::Full]);
        is_full(store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await);
        assert!(store.get(&key).await.unwrap().is_none());
        let object = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        spy.fates(&[Fate::Full, Fate::Full]);
        is_full(store.update(&object, mk_draft(uid, "2", vec![mk_noise(2, size)])).await);
        is_full(store.delete(&object).await);
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!((now.version, label(&now)), (object.version, "1"));
        assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(1, size), "{size}");
        // Who came too late is told so, and not to make room.
        spy.fates(&[Fate::Full]);
        let exists = store.create(&key, mk_draft(uid, "3", vec![])).await;
        assert!(matches!(exists, Err(Error::Exists)), "{exists:?}");
        store.delete(&object).await.unwrap();
    }
    cleaned_up(&spy).await;
    store.close().await;
}

/// A try that may still happen leaves the outcome open, whatever the next one is told: its chunks stay.
async fn a_full_backend_does_not_end_the_doubt_about_an_earlier_try(lab: &Lab) {
    let (spy, store) = open(lab).await;
    for size in [100, 300_000, 3 << 20] {
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        let object = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        spy.fates(&[Fate::Late, Fate::Full]);
        let open = store.update(&object, mk_draft(uid, "2", vec![mk_noise(2, size)])).await;
        assert!(matches!(open, Err(Error::UnknownOutcome(_))), "{open:?}");
        assert_eq!(spy.happen().await, 1);
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!(label(&now), "2");
        assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(2, size), "{size}");
    }
    store.close().await;
}

/// The store stops, and the chunks of what may have been committed stay.
async fn a_commit_in_a_store_that_went_back_takes_nothing_away(lab: &Lab) {
    for size in [100_usize, 300_000, 5 << 20] {
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        let (spy, store) = open(lab).await;
        let object = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        spy.fates(&[Fate::WentBack]);
        let open = store.update(&object, mk_draft(uid, "2", vec![mk_noise(2, size)])).await;
        assert!(matches!(open, Err(Error::UnknownOutcome(_))), "{open:?}");
        let stopped = store.update(&object, mk_draft(uid, "3", vec![])).await;
        assert!(matches!(stopped, Err(Error::Damaged(_))), "{stopped:?}");
        // Waits for all that the store does in the background.
        store.close().await;
        let store = lab.open().await;
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!(label(&now), "2");
        assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(2, size), "{size}");
        store.close().await;
    }
}

/// Whoever cannot read what is there does not know whether it is what was written, and takes nothing away.
async fn a_record_that_cannot_be_opened_leaves_the_outcome_open(lab: &Lab) {
    let (spy, store) = open(lab).await;
    for size in [300_000, 3 << 20] {
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        let object = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        spy.fates(&[Fate::HeldUnanswered]);
        let writer = store.clone();
        let draft = mk_draft(uid, "2", vec![mk_noise(2, size)]);
        let written = tokio::spawn(async move { writer.update(&object, draft).await });
        spy.waiting().await;
        let path = Bytes::from(format!("/registry/core.example.org/states/ns/{size}"));
        let record = spy.get(path.clone(), None).await.unwrap().unwrap();
        spy::put(&*spy, &path, "not to be opened").await;
        spy.release();
        let open = written.await.unwrap();
        assert!(matches!(open, Err(Error::UnknownOutcome(_))), "{open:?}");
        spy::put(&*spy, &path, record.value).await;
    }
    // Waits for all that the store does in the background.
    store.close().await;
    let store = lab.open().await;
    for size in [300_000, 3 << 20] {
        let now = store.get(&mk_key(&size.to_string())).await.unwrap().unwrap();
        assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(2, size), "{size}");
    }
    store.close().await;
}

async fn cleaned_up(spy: &Arc<Spy>) {
    let begin = std::time::Instant::now();
    while !spy::all(&**spy, "/chunks/").await.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "the failed write did not clean up behind itself");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn gives_up_where_nothing_answers(lab: &Lab) {
    let (spy, store) = open(lab).await;
    let object = store.create(&mk_key("a"), mk_draft(Uuid::nil(), "1", vec![])).await.unwrap();
    spy.fates(&[Fate::Lost; 10]);
    let lost = store.update(&object, mk_draft(Uuid::nil(), "2", vec![])).await;
    assert!(matches!(lost, Err(Error::UnknownOutcome(_))), "{lost:?}");
    spy.fates(&[Fate::Lost, Fate::Unavailable]);
    let lost = store.update(&object, mk_draft(Uuid::nil(), "2", vec![])).await;
    assert!(matches!(lost, Err(Error::UnknownOutcome(_))), "{lost:?}");
    spy.fates(&[]);
    store.update(&object, mk_draft(Uuid::nil(), "2", vec![])).await.unwrap();
    store.close().await;
}

async fn says_nothing_was_done_where_nothing_was(lab: &Lab) {
    let (spy, store) = open(lab).await;
    for size in [100, 5 << 20] {
        spy.fates(&[Fate::Unavailable]);
        let down = store.create(&mk_key("a"), mk_draft(Uuid::nil(), "1", vec![mk_noise(1, size)])).await;
        assert!(matches!(down, Err(Error::Unavailable(_))), "{down:?}");
        assert!(store.get(&mk_key("a")).await.unwrap().is_none());
    }
    cleaned_up(&spy).await;
    store.close().await;
}

/// A removal of what is gone already is refused, also where the first try of it is lost.
async fn takes_no_earlier_removal_for_its_own(lab: &Lab) {
    let (spy, store) = open(lab).await;
    let object = store.create(&mk_key("a"), mk_draft(Uuid::from_u128(1), "1", vec![])).await.unwrap();
    store.delete(&object).await.unwrap();
    for again in [false, true] {
        if again {
            store.create(&mk_key("a"), mk_draft(Uuid::from_u128(2), "2", vec![])).await.unwrap();
        }
        spy.fates(&[Fate::Lost]);
        let refused = store.delete(&object).await;
        assert!(matches!(refused, Err(Error::Conflict)), "{refused:?}");
    }
    store.close().await;
}

/// A try of unknown outcome may be on its way for long. Once its writer has an answer, it changes nothing any more: not even
/// where an object is to be made, and there is none again.
async fn what_was_answered_does_not_happen_later(lab: &Lab) {
    let (spy, store) = open(lab).await;
    for size in [100, 300_000, 3 << 20] {
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        let draft = |label| mk_draft(uid, label, vec![mk_noise(size as u64, size)]);
        let first = store.create(&key, draft("first")).await.unwrap();
        // Refused, as there is one; then there is none.
        spy.fates(&[Fate::Late]);
        let refused = store.create(&key, draft("refused")).await;
        assert!(matches!(refused, Err(Error::Exists)), "{refused:?}");
        store.delete(&first).await.unwrap();
        assert_eq!(spy.happen().await, 0);
        assert!(store.get(&key).await.unwrap().is_none());
        // Made by another try, and removed.
        spy.fates(&[Fate::Late, Fate::Late]);
        let made = store.create(&key, draft("made")).await.unwrap();
        store.delete(&made).await.unwrap();
        assert_eq!(spy.happen().await, 0);
        assert!(store.get(&key).await.unwrap().is_none());
        // As where a state is to be replaced or removed.
        let made = store.create(&key, draft("made")).await.unwrap();
        spy.fates(&[Fate::Late]);
        let changed = store.update(&made, draft("changed")).await.unwrap();
        spy.fates(&[Fate::Late]);
        store.delete(&changed).await.unwrap();
        assert_eq!(spy.happen().await, 0);
    }
    store.close().await;
}

/// Of a state that could not be replaced, everything is still there.
async fn an_update_that_fails_takes_nothing_away(lab: &Lab) {
    let (spy, store) = open(lab).await;
    for size in [100, 300_000, 5 << 20] {
        let (key, uid) = (mk_key(&size.to_string()), Uuid::from_u128(size as u128));
        let object = store.create(&key, mk_draft(uid, "1", vec![mk_noise(1, size)])).await.unwrap();
        spy.fates(&[Fate::Unavailable, Fate::Unavailable]);
        let down = store.update(&object, mk_draft(uid, "2", vec![mk_noise(2, size)])).await;
        assert!(matches!(down, Err(Error::Unavailable(_))), "{down:?}");
        assert!(matches!(store.delete(&object).await, Err(Error::Unavailable(_))));
        let now = store.get(&key).await.unwrap().unwrap();
        assert_eq!((now.version, label(&now)), (object.version, "1"));
        assert!(store.payload_bytes(&now).await.unwrap() == mk_noise(1, size), "{size}");
    }
    store.close().await;
}
