//! What is exported comes back, in the other backend too, and nothing is imported from what is not whole.

use std::io::Cursor;

use repot_storage::store::archive::{Error, Existing};

use super::{
    spy::{all, put},
    *,
};

on_every_backend! {
    brings_objects_to_the_other_backend
    refuses_what_is_not_whole
    keeps_or_replaces_what_exists
    leaves_out_nothing_that_cannot_be_read
}

async fn fill(store: &Store) {
    for (at, len) in [(1, 0), (2, 300), (3, 200_000), (4, 3 << 20)] {
        let draft = mk_draft(Uuid::from_u128(at), &at.to_string(), vec![mk_noise(at as u64, len)]);
        store.create(&mk_key(&format!("o{at}")), draft).await.unwrap();
    }
}

async fn export(store: &Store) -> Vec<u8> {
    let mut file = Vec::new();
    let moved = store.export(&mut file, |_| {}).await.unwrap();
    assert_eq!(moved.objects, 4);
    file
}

async fn import(store: &Store, file: &[u8], existing: Existing) -> Result<(u64, u64), Error> {
    store.import(Cursor::new(file), existing, |_| {}).await.map(|moved| (moved.objects, moved.left))
}

fn other(lab: &Lab) -> impl Future<Output = Lab> {
    let embedded = matches!(lab, Lab::Embedded(_));
    async move { if embedded { Lab::etcd().await } else { Lab::embedded().await } }
}

async fn brings_objects_to_the_other_backend(lab: &Lab) {
    let store = lab.open().await;
    fill(&store).await;
    // Versions that are far ahead of those of a new store.
    store.raise_past(ResourceVersion(5_000_000)).await.unwrap();
    let (file, version) = (export(&store).await, current(&store).await);
    assert!(!file.windows(300).any(|part| part == &mk_noise(2, 300)[..]), "payload in clear");

    let there = other(lab).await;
    let copy = there.open().await;
    assert_eq!(import(&copy, &file, Existing::Fail).await.unwrap(), (4, 0));
    assert!(current(&copy).await > version, "versions went back");
    for (at, len) in [(1, 0), (2, 300), (3, 200_000), (4, 3 << 20)] {
        let object = copy.get(&mk_key(&format!("o{at}"))).await.unwrap().unwrap();
        assert_eq!((object.uid, label(&object)), (Uuid::from_u128(at), &*at.to_string()));
        assert_eq!(object.summary, format!("summary {at}"));
        assert!(copy.payload_bytes(&object).await.unwrap() == mk_noise(at as u64, len));
    }
    let checked = copy.fsck(false, |finding| panic!("{finding:?}"), |_| {}).await.unwrap();
    assert_eq!(checked.objects, 4);
    for store in [store, copy] {
        store.close().await;
    }
}

async fn refuses_what_is_not_whole(lab: &Lab) {
    let store = lab.open().await;
    fill(&store).await;
    let file = export(&store).await;
    let there = other(lab).await;
    let copy = there.open().await;
    let mut wrong =
        vec![Vec::new(), b"no archive".to_vec(), file[..file.len() - 1].to_vec(), file[1..].to_vec()];
    for at in (0..file.len()).step_by(file.len() / 60) {
        let mut flipped = file.clone();
        flipped[at] ^= 1;
        wrong.push(flipped);
        wrong.push(file[..at].to_vec());
    }
    for bad in wrong {
        let error = import(&copy, &bad, Existing::Fail).await.unwrap_err();
        assert!(matches!(error, Error::Damaged(_)), "{error:?}");
        assert_eq!(copy.list(all_of()).await.unwrap().objects.len(), 0, "something was imported");
    }
    for store in [store, copy] {
        store.close().await;
    }
}

fn all_of() -> repot_storage::ListRequest {
    repot_storage::ListRequest::all(mk_scope(None))
}

async fn keeps_or_replaces_what_exists(lab: &Lab) {
    let store = lab.open().await;
    fill(&store).await;
    let file = export(&store).await;
    let object = store.get(&mk_key("o3")).await.unwrap().unwrap();
    store.update(&object, mk_draft(object.uid, "newer", vec![])).await.unwrap();
    store.delete(&store.get(&mk_key("o4")).await.unwrap().unwrap()).await.unwrap();
    let label_of = async |name: &str| label(&store.get(&mk_key(name)).await.unwrap().unwrap()).to_owned();

    let refused = import(&store, &file, Existing::Fail).await.unwrap_err();
    assert!(matches!(&refused, Error::Exists(key) if key.name == "o1"), "{refused:?}");
    assert!(store.get(&mk_key("o4")).await.unwrap().is_none(), "something was imported");
    assert_eq!(import(&store, &file, Existing::Skip).await.unwrap(), (1, 3));
    assert_eq!(label_of("o3").await, "newer");
    assert_eq!(import(&store, &file, Existing::Replace).await.unwrap(), (4, 0));
    assert_eq!(label_of("o3").await, "3");
    // Another object of the same name is not touched.
    store.delete(&store.get(&mk_key("o2")).await.unwrap().unwrap()).await.unwrap();
    store.create(&mk_key("o2"), mk_draft(Uuid::from_u128(99), "another", vec![])).await.unwrap();
    assert_eq!(import(&store, &file, Existing::Replace).await.unwrap(), (3, 1));
    assert_eq!(label_of("o2").await, "another");
    store.close().await;
}

async fn leaves_out_nothing_that_cannot_be_read(lab: &Lab) {
    let backend = lab.backend().await;
    let store = Store::open(backend.clone(), mk_keyring(), StoreOptions::default()).await.unwrap();
    fill(&store).await;
    let record = all(&*backend, "/registry/core.example.org/states/ns/o3").await.remove(0);
    put(&*backend, &record.key, record.value.slice(..record.value.len() - 3)).await;
    let error = store.export(&mut Vec::new(), |_| {}).await.unwrap_err();
    assert!(
        matches!(&error, Error::Store(repot_storage::Error::Corrupt { key, .. }) if key.name == "o3"),
        "{error:?}"
    );
    store.close().await;
}
