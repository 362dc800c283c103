//! Reads and writes of objects of any kind, with the rights of the user, each within a time.

mod kinds;

use std::time::Duration;

use http::{HeaderMap, Request};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::Value;

pub use self::kinds::{
    CONTROL_PLANE_MIGRATION, ETCD, ETCD_BACKUP, ETCD_MIGRATION, ETCD_RESTORE, EVENT, HOSTED_ETCD, Kind, SEED,
    SHOOT, SHOOT_STATE, SHOOT_STATE_OF_CORE, ZONE_ISOLATION,
};
use crate::text::one_line;

/// Objects that are read with one request.
const PAGE: usize = 500;
/// Who it is that writes, in managedFields.
const MANAGER: &str = "repot-cli";

/// An object cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user may not do this.
    #[error("{what}: forbidden: {message}")]
    Forbidden {
        /// What was tried.
        what: String,
        /// What the API server says.
        message: String,
    },
    /// The API server does not serve the kind.
    #[error("{what}: the API server does not serve {kind}")]
    NotServed {
        /// What was tried.
        what: String,
        /// Resource and group.
        kind: String,
    },
    /// The API server refuses it.
    #[error("{what}: {message}")]
    Refused {
        /// What was tried.
        what: String,
        /// What the API server says.
        message: String,
        /// Status code of the answer.
        code: u16,
    },
    /// No answer came in time.
    #[error("{what}: no answer within {} s", limit.as_secs())]
    Late {
        /// What was tried.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The request failed on its way.
    #[error("{what}: {message}")]
    Request {
        /// What was tried.
        what: String,
        /// Why it failed, with all causes.
        message: String,
    },
    /// There is no such object.
    #[error("there is no {0}")]
    Missing(String),
    /// There are more objects than are read.
    #[error("there are more than {most} {plural}; name a namespace, or labels")]
    Cut {
        /// Name of the resource.
        plural: &'static str,
        /// How many are read.
        most: usize,
    },
}

impl Error {
    /// An object that has another form than its kind.
    pub(crate) fn form(error: &serde_json::Error) -> Self {
        Self::Request { what: "failed to read an object".to_owned(), message: error.to_string() }
    }

    /// Whether the same request may have another answer in a moment.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Late { .. } | Self::Request { .. } => true,
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            Self::Forbidden { .. } | Self::NotServed { .. } | Self::Missing(_) | Self::Cut { .. } => false,
        }
    }

    /// Whether somebody else has written the object since it was read.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }
}

/// Result of a read or write of objects.
pub type Result<T> = std::result::Result<T, Error>;

/// Objects of one kind that were read.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The objects, in the order of the API server.
    pub items: Vec<Value>,
    /// Whether there are more than were asked for.
    pub is_cut: bool,
}

impl Listed {
    /// All objects of the kind.
    ///
    /// # Errors
    /// [`Error::Cut`] where there are more.
    pub fn whole(self, kind: &Kind, most: usize) -> Result<Vec<Value>> {
        if self.is_cut { Err(Error::Cut { plural: kind.plural, most }) } else { Ok(self.items) }
    }
}

/// The objects of a cluster.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    limit: Duration,
}

impl Objects {
    /// With the rights of this client; each request ends after this time.
    #[must_use]
    pub fn new(client: Client, limit: Duration) -> Self {
        Self { client, limit }
    }

    /// The client that requests go through.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn api(&self, kind: &Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource()),
            None => Api::all_with(self.client.clone(), &kind.resource()),
        }
    }

    /// Objects of one namespace or of all, at most so many.
    ///
    /// # Errors
    /// [`Error`], such as that the kind is not served.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        params: ListParams,
        most: usize,
    ) -> Result<Listed> {
        let what = format!("failed to list {}", kind.plural);
        let api = self.api(kind, namespace);
        let size = u32::try_from(most.clamp(1, PAGE)).unwrap_or(1);
        let (mut params, mut found) = (params.limit(size), Listed::default());
        loop {
            let page = self.within(&what, kind, true, api.list(&params)).await?;
            found.items.extend(page.items.into_iter().filter_map(|one| serde_json::to_value(one).ok()));
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            found.is_cut = found.items.len() > most || (next.is_some() && found.items.len() == most);
            found.items.truncate(most);
            match next.filter(|_| found.items.len() < most) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// One object; `None` where there is none.
    ///
    /// # Errors
    /// [`Error`], but not that the object is missing.
    pub async fn get(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<Value>> {
        let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let what = format!("failed to read {} {place}{name}", kind.kind);
        let api = self.api(kind, namespace);
        let found = self.within(&what, kind, false, api.get_opt(name)).await?;
        Ok(found.and_then(|one| serde_json::to_value(one).ok()))
    }

    /// One object that has to be there.
    ///
    /// # Errors
    /// [`Error`], such as that the object is missing.
    pub async fn require(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value> {
        let missing = || Error::Missing(format!("{} {namespace}/{name}", kind.kind));
        self.get(kind, Some(namespace), name).await?.ok_or_else(missing)
    }

    /// Creates an object, or only asks whether that would be allowed. The answer is the object as it is stored.
    ///
    /// # Errors
    /// [`Error`], such as what a webhook says.
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        object: &Value,
        dry_run: bool,
    ) -> Result<Value> {
        let what = format!("failed to create {}", kind.kind);
        let refused = |message: String| Error::Request { what: what.clone(), message };
        let object: DynamicObject =
            serde_json::from_value(object.clone()).map_err(|error| refused(error.to_string()))?;
        let params = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
        let api = self.api(kind, namespace);
        let made = self.within(&what, kind, true, api.create(&params, &object)).await?;
        serde_json::to_value(made).map_err(|error| refused(error.to_string()))
    }

    /// Merges a patch into an object.
    ///
    /// # Errors
    /// [`Error`], such as what a webhook says.
    pub async fn merge(&self, kind: &Kind, namespace: &str, name: &str, patch: &Value) -> Result<()> {
        let what = format!("failed to change {} {namespace}/{name}", kind.kind);
        let (params, patch) = (
            PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() },
            Patch::Merge(patch),
        );
        let api = self.api(kind, Some(namespace));
        self.within(&what, kind, false, api.patch(name, &params, &patch)).await.map(drop)
    }

    /// The JSON at a path of the API server, and the headers of the answer; `accept` is the media type that is asked for.
    ///
    /// # Errors
    /// [`Error`], such as that the answer is no JSON or longer than `most` bytes.
    pub async fn raw(&self, path: &str, accept: &str, most: usize) -> Result<(HeaderMap, Value)> {
        let what = format!("failed to read {path}");
        let failed = |message: String| Error::Request { what: what.clone(), message };
        let request = Request::get(path).header(http::header::ACCEPT, accept);
        let request = request.body(kube::client::Body::empty()).map_err(|error| failed(error.to_string()))?;
        let answer = tokio::time::timeout(self.limit, async {
            let answer = self.client.send(request).await.map_err(|error| failed(message(&error)))?;
            let (head, body) = answer.into_parts();
            let body = read_up_to(body, most).await.map_err(&failed)?;
            Ok((head, body))
        });
        let late = |_| Error::Late { what: what.clone(), limit: self.limit };
        let (head, body) = answer.await.map_err(late)??;
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        if !head.status.is_success() {
            let message = value.as_ref().and_then(|status| status.get("message")?.as_str());
            let message = message.unwrap_or_else(|| head.status.canonical_reason().unwrap_or_default());
            return Err(refused(&what, path, head.status.as_u16(), message, true));
        }
        let value = value.ok_or_else(|| failed("the answer is no JSON".to_owned()))?;
        Ok((head.headers, value))
    }

    async fn within<T>(
        &self,
        what: &str,
        kind: &Kind,
        is_collection: bool,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                let name = format!("{}.{}", kind.plural, kind.group);
                let name = name.trim_end_matches('.');
                Err(refused(what, name, status.code, &status.message, is_collection))
            }
            Ok(Err(error)) => Err(Error::Request { what: what.to_owned(), message: message(&error) }),
            Err(_) => Err(Error::Late { what: what.to_owned(), limit: self.limit }),
        }
    }
}

/// What an answer of this code means. A collection is always there, unless its kind is not served.
fn refused(what: &str, kind: &str, code: u16, message: &str, is_collection: bool) -> Error {
    // Webhooks of others write messages, and quote what others have stored.
    let (what, message) = (what.to_owned(), one_line(message));
    match code {
        401 | 403 => Error::Forbidden { what, message },
        404 if is_collection => Error::NotServed { what, kind: kind.to_owned() },
        _ => Error::Refused { what, message, code },
    }
}

async fn read_up_to(body: kube::client::Body, most: usize) -> std::result::Result<Vec<u8>, String> {
    use http_body_util::BodyExt as _;
    let (mut body, mut read) = (std::pin::pin!(body), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(data) = frame.data_ref() {
            read.extend_from_slice(data);
        }
        if read.len() > most {
            return Err(format!("the answer is longer than {most} bytes"));
        }
    }
    Ok(read)
}

/// What a failed request says, in one line: the message of the API server, or the error with all of its causes.
#[must_use]
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => one_line(&status.message),
        error => causes(error),
    }
}

/// An error with all of its causes, in one line.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let says = cause.to_string();
        if !text.contains(&says) {
            text = format!("{text}: {says}");
        }
        source = cause.source();
    }
    one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(HOSTED_ETCD.path(), "/apis/migration.gardener.cloud/v1alpha1/hostedetcds");
        assert_eq!(Kind::new("", "v1", "Pod", "pods").path(), "/api/v1/pods");
    }

    #[test]
    fn missing_collection_is_a_kind_that_is_not_served() {
        let of = |code, is_collection| refused("w", "etcds", code, "m\u{1b}[2J", is_collection);
        assert!(matches!(of(403, true), Error::Forbidden { .. }));
        assert!(matches!(of(404, true), Error::NotServed { .. }));
        assert!(matches!(of(404, false), Error::Refused { code: 404, .. }));
        assert_eq!(of(404, true).to_string(), "w: the API server does not serve etcds");
        assert!(!of(422, false).to_string().contains('\u{1b}'));
    }
}
