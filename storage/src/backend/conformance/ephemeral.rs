//! Keys that live as long as their writer.

use super::*;

fn fleeting(name: &str) -> Op {
    Op::PutEphemeral(key(name), key("here"))
}

/// Waits until a key is gone, by way of a watch.
async fn until_gone(backend: &dyn Backend, name: &str) {
    let seen = page(backend, &under(name, None)).await;
    let mut stream = watch(backend, name, seen.revision).await;
    if seen.kvs.is_empty() {
        return;
    }
    loop {
        if let WatchItem::Events(events) = stream.next().await.unwrap().unwrap()
            && events.iter().any(|event| event.key == name && event.now.is_none())
        {
            return;
        }
    }
}

pub async fn ephemeral_keys_vanish_with_their_writer(lab: &dyn Lab) {
    let backend = lab.open().await;
    commit(&*backend, [fleeting("/t/fleeting"), put("/t/lasting", "x")]).await;
    commit(&*backend, [fleeting("/t/large"), fleeting("/t/removed")]).await;
    let last = commit(&*backend, [delete("/t/removed")]).await;
    backend.close().await;
    drop(backend);
    let backend = &*lab.open().await;
    until_gone(backend, "/t/fleeting").await;
    until_gone(backend, "/t/large").await;
    assert_eq!(names(&page(backend, &under("/t/", None)).await), ["/t/lasting"]);
    // They vanish by a transaction like any other.
    let newest = backend.revision().await.unwrap();
    let events = events_until(&mut watch(backend, "/t/", last).await, newest).await;
    let mut gone: Vec<_> = events.iter().map(|event| (&event.key[..], event.now.is_none())).collect();
    gone.sort_unstable();
    assert_eq!(gone, [(&b"/t/fleeting"[..], true), (b"/t/large", true)]);
}

pub async fn ephemeral_keys_stay_while_their_writer_does(lab: &dyn Lab) {
    let backend = &*lab.open().await;
    let revision = commit(backend, [fleeting("/t/fleeting")]).await;
    let mut stream = watch(backend, "/t/", revision).await;
    let quiet = async {
        while let WatchItem::Progress(_) = stream.next().await.unwrap().unwrap() {}
        panic!("something happened to the key");
    };
    // Longer than any lease that is not kept alive in a lab.
    assert!(tokio::time::timeout(Duration::from_secs(6), quiet).await.is_err());
    assert_eq!(read(backend, "/t/fleeting").await.unwrap().modified, revision);
}

pub async fn an_ephemeral_key_that_is_put_again_stays(lab: &dyn Lab) {
    let backend = lab.open().await;
    commit(&*backend, [fleeting("/t/a"), fleeting("/t/witness")]).await;
    commit(&*backend, [put("/t/a", "lasting")]).await;
    backend.close().await;
    drop(backend);
    let backend = &*lab.open().await;
    until_gone(backend, "/t/witness").await;
    assert_eq!(value(backend, "/t/a", None).await.unwrap(), "lasting");
}
