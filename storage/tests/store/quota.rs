//! When etcd's quota is used up it takes no writes until somebody makes room and says so. What is there can be read and removed.

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions};
use repot_storage::{Error, ListRequest};

use super::*;

/// Fills up after some twenty objects.
const QUOTA: &str = "16777216";

fn content(number: u64) -> Bytes {
    mk_noise(number, 700_000)
}

/// The number is that of its name and its content.
async fn create(store: &Store, number: u64) -> Result<Object, Error> {
    let draft = mk_draft(Uuid::from_u128(number.into()), "1", vec![content(number)]);
    store.create(&mk_key(&format!("o-{number:03}")), draft).await
}

/// Everything that was acknowledged is there, and nothing else is.
async fn check(store: &Store, kept: &[(u64, Object)]) {
    let request = ListRequest::all(mk_scope(None));
    for list in [store.list(request).await.unwrap(), store.list_cached(&mk_scope(None), None).await.unwrap()]
    {
        let listed: Vec<_> = list.objects.iter().map(|object| object.as_ref().unwrap().version).collect();
        assert_eq!(listed, kept.iter().map(|(_, object)| object.version).collect::<Vec<_>>());
    }
    for (number, object) in kept {
        let read = store.get(&object.key).await.unwrap().unwrap();
        assert!(store.payload_bytes(&read).await.unwrap() == content(*number));
    }
    let checked = store.fsck(false, |finding| panic!("{finding:?}"), |_| {}).await.unwrap();
    assert_eq!(checked.objects as usize, kept.len());
}

fn is_told(outcome: Result<Object, Error>) {
    let error = outcome.unwrap_err();
    let Error::NoSpace(why) = &error else { panic!("{error:?}") };
    assert!(["quota", "defragment", "alarm disarm"].iter().all(|word| why.contains(word)), "{why}");
}

/// As etcd's manual says, but for the alarm.
async fn make_room(client: &mut Client) {
    let newest = client.get("any", None).await.unwrap().header().unwrap().revision();
    client.compact(newest, Some(CompactionOptions::new().with_physical())).await.unwrap();
    client.defragment().await.unwrap();
}

async fn disarm(client: &mut Client) {
    let alarms = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await.unwrap();
    assert_eq!(alarms.alarms().len(), 1);
    let mut member = AlarmOptions::new();
    member.with_member(alarms.alarms()[0].member_id());
    client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(member)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_quota_stops_writes_and_nothing_else() {
    let process = EtcdProcess::start(None, &["--quota-backend-bytes", QUOTA]).await;
    let backend = Arc::new(Etcd::connect(process.options()).await.unwrap());
    let store = Store::open(backend, mk_keyring(), StoreOptions::default()).await.unwrap();
    let mut kept: Vec<(u64, Object)> = Vec::new();
    loop {
        let number = kept.len() as u64;
        match create(&store, number).await {
            Ok(object) => kept.push((number, object)),
            refused => break is_told(refused),
        }
    }
    assert!(kept.len() > 10, "{} objects fit", kept.len());
    // Whatever the size, and where an intent would be needed.
    let large = mk_draft(Uuid::nil(), "large", vec![mk_noise(1, 3 << 20)]);
    is_told(store.create(&mk_key("large"), large).await);
    is_told(store.create(&mk_key("small"), mk_draft(Uuid::nil(), "small", vec![])).await);
    is_told(store.update_head(&kept[0].1, "meta 2".into(), Bytes::new()).await);
    check(&store, &kept).await;
    // Most of them: the file of etcd's database has a power of two of bytes, and the quota is one.
    for (_, object) in kept.split_off(4) {
        store.delete(&object).await.unwrap();
    }
    store.collect().await.unwrap();
    check(&store, &kept).await;

    let mut client = Client::connect([process.endpoint()], None).await.unwrap();
    make_room(&mut client).await;
    is_told(create(&store, 100).await);
    disarm(&mut client).await;
    kept.push((100, create(&store, 100).await.unwrap()));
    // Another payload, so that chunks are written and others go.
    let (_, object) = kept.remove(0);
    let again = store.update(&object, mk_draft(object.uid, "2", vec![content(200)])).await.unwrap();
    assert!(again.version > kept.last().unwrap().1.version);
    kept.insert(0, (200, again));
    check(&store, &kept).await;
    assert_eq!(label(&store.get(&object.key).await.unwrap().unwrap()), "2");
    assert_eq!(store.collect().await.unwrap().removed, 0);
    store.close().await;
}

/// Clients that fill etcd at once: some pass its first look at the quota and not the second, which comes as the transaction
/// is applied. What they are told has to be true of those, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_is_used_up_while_writes_are_under_way_loses_nothing() {
    const CLIENTS: u64 = 8;
    let mut late = 0;
    for round in 0..10 {
        let process = EtcdProcess::start(None, &["--quota-backend-bytes", QUOTA]).await;
        let backend = Arc::new(Etcd::connect(process.options()).await.unwrap());
        let store = Store::open(backend, mk_keyring(), StoreOptions::default()).await.unwrap();
        let clients = (0..CLIENTS).map(|client| {
            let store = store.clone();
            tokio::spawn(async move {
                let (mut made, mut number) = (Vec::new(), client * 100);
                loop {
                    match create(&store, number).await {
                        Ok(object) => made.push((number, object)),
                        refused => break is_told(refused),
                    }
                    number += 1;
                }
                made
            })
        });
        let mut kept: Vec<_> =
            futures::future::join_all(clients).await.into_iter().flat_map(Result::unwrap).collect();
        kept.sort_by_key(|(number, _)| *number);
        check(&store, &kept).await;
        store.close().await;
        late += process.count_in_log("message exceeded backend quota");
        if late > 0 && round > 0 {
            return;
        }
    }
    panic!("etcd refused nothing as late as that, so this shows nothing");
}
