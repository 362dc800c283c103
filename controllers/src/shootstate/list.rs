//! Lists and reads of any kind, token for token: what typed clients do not know would be lost, and numbers be spelled differently.

use kube::{
    Client,
    core::{
        ApiResource, DynamicObject, Resource,
        params::{GetParams, ListParams},
        request::Request,
    },
};
use repot_extension::RawJson;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    error::{Error, Result},
    kinds::SeedKind,
};
use crate::errors::is_not_found;

/// Objects of one page, as client-go has it.
const PAGE: u32 = 500;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Lists all objects of a kind in a namespace that have a label, by pages, from the store of the API server.
///
/// A kind that is not served has no objects.
///
/// # Errors
/// [`Error::Read`], [`Error::Malformed`].
pub async fn list(
    client: &Client,
    kind: &SeedKind,
    namespace: &str,
    labels: Option<&str>,
) -> Result<Vec<RawJson>> {
    let (path, what) = (kind.path(Some(namespace)), format!("{} of namespace {namespace}", kind.plural));
    let mut params =
        ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default() }.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let request = Request::new(&path).list(&params).map_err(kube::Error::BuildRequest);
        let text = match client.request_text(request.map_err(Error::read(&what))?).await {
            Err(error) if is_not_found(&error) => return Ok(Vec::new()),
            answer => answer.map_err(Error::read(&what))?,
        };
        let page: Page<'_> = serde_json::from_str(&text).map_err(|_| Error::Malformed(what.clone()))?;
        all.extend(page.items.into_iter().flatten().map(|item| RawJson::from(item.to_owned())));
        match page.metadata.next.filter(|next| !next.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok(all),
        }
    }
}

/// Reads an object; `None` where it does not exist.
///
/// # Errors
/// [`Error::Read`], [`Error::Malformed`].
pub async fn get(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<RawJson>> {
    let what = format!("{} {name}", resource.kind);
    let request = Request::new(DynamicObject::url_path(resource, namespace)).get(name, &GetParams::default());
    let request = request.map_err(kube::Error::BuildRequest).map_err(Error::read(&what))?;
    match client.request_text(request).await {
        Ok(text) => RawJson::parse(text).map(Some).map_err(|_| Error::Malformed(what)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(source) => Err(Error::Read { what, source }),
    }
}
