//! Lists show one version, whatever is written meanwhile.

use super::*;

on_every_backend! {
    placeholder
}

async fn placeholder(lab: &Lab) {
    let store = lab.open().await;
    store.close().await;
}
