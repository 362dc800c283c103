//! Lists of a namespace, read from the API server itself.

use std::fmt::Debug;

use kube::{Api, Client, Resource, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use crate::{
    errors::is_not_found,
    migration::error::{Error, Result},
};

/// So many objects in one answer.
const PAGE: u32 = 500;

/// All objects of a kind in a namespace that a selector of labels selects; none where the kind is not served.
///
/// # Errors
/// [`Error::Read`].
pub async fn list<K>(client: &Client, namespace: &str, labels: &str) -> Result<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    pages(
        &Api::<K>::namespaced(client.clone(), namespace),
        labels,
        &format!("{}s of {namespace}", K::kind(&())),
    )
    .await
}

/// All objects of an API, page by page.
///
/// # Errors
/// [`Error::Read`].
pub async fn pages<K>(all: &Api<K>, labels: &str, what: &str) -> Result<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut found = Vec::new();
    let mut params = ListParams::default().labels(labels).limit(PAGE);
    loop {
        let page = match all.list(&params).await {
            Err(error) if is_not_found(&error) => return Ok(found),
            page => page.map_err(Error::read(what))?,
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}
