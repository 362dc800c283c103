//! Reads and writes of the garden, with the rights of the user.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::names::CORE_GROUP;
use repot_controllers::migration::api::ControlPlaneMigration;
use serde_json::Value;

use crate::{migration::Migration, text::one_line};

/// Objects that are read with one request.
const PAGE: u32 = 500;
/// Most migrations that are read at once. Older ones than these may be missing then.
pub const MOST_MIGRATIONS: usize = 20_000;
/// Most objects of another kind that are read at once.
pub const MOST_OBJECTS: usize = 50_000;
/// Most Events of one object that are read.
pub const MOST_EVENTS: u32 = 2000;
/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The garden cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refuses, in its own words.
    #[error("failed to {what}: {message} (HTTP {code})")]
    Refused {
        /// What was tried.
        what: String,
        /// What the server says.
        message: String,
        /// Status code of HTTP.
        code: u16,
    },
    /// The API server does not answer, or not as it should.
    #[error("failed to {what}")]
    Request {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer came in time.
    #[error("failed to {what}: no answer within {} s", LIMIT.as_secs())]
    Late {
        /// What was tried.
        what: String,
    },
    /// There is no such migration.
    #[error("{0}")]
    Missing(String),
}

impl Error {
    fn new(what: &str, source: kube::Error) -> Self {
        let what = what.to_owned();
        match source {
            kube::Error::Api(status) => {
                Self::Refused { what, message: one_line(&status.message), code: status.code }
            }
            source => Self::Request { what, source: Box::new(source) },
        }
    }

    /// Whether the server does not know the kind, or has no such object.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. } | Self::Missing(_))
    }
}

/// Result of a read or write of the garden.
pub type Result<T> = std::result::Result<T, Error>;

/// The cluster with Shoots and ControlPlaneMigrations.
#[derive(Clone)]
pub struct Garden(Client);

impl Garden {
    /// With the rights of this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0
    }

    /// Migrations of all namespaces or of one, of all Shoots or of one, the oldest first.
    ///
    /// # Errors
    /// Those of the API server, also where it does not serve the kind.
    pub async fn migrations(&self, namespace: Option<&str>, shoot: Option<&str>) -> Result<Vec<Migration>> {
        let mut found: Vec<Migration> =
            self.objects(namespace, shoot).await?.iter().map(Migration::new).collect();
        found.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        Ok(found)
    }

    /// The same as objects, in no order.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn objects(
        &self,
        namespace: Option<&str>,
        shoot: Option<&str>,
    ) -> Result<Vec<ControlPlaneMigration>> {
        let api: Api<ControlPlaneMigration> = match namespace {
            Some(namespace) => Api::namespaced(self.0.clone(), namespace),
            None => Api::all(self.0.clone()),
        };
        let mut params = ListParams::default().limit(PAGE);
        if let Some(shoot) = shoot {
            params = params.fields(&format!("spec.shootRef.name={shoot}"));
        }
        let mut found = Vec::new();
        loop {
            let page = within("list ControlPlaneMigrations", api.list(&params)).await?;
            found.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty() && found.len() < MOST_MIGRATIONS) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// A migration by its name.
    ///
    /// # Errors
    /// Those of the API server, or that there is none.
    pub async fn migration(&self, namespace: &str, name: &str) -> Result<ControlPlaneMigration> {
        let api = Api::<ControlPlaneMigration>::namespaced(self.0.clone(), namespace);
        let what = format!("read ControlPlaneMigration {namespace}/{name}");
        let missing = || Error::Missing(format!("there is no ControlPlaneMigration {namespace}/{name}"));
        within(&what, api.get_opt(name)).await?.ok_or_else(missing)
    }

    /// The migration of a Shoot that was created last.
    ///
    /// # Errors
    /// Those of the API server, or that there is none.
    pub async fn newest(&self, namespace: &str, shoot: &str) -> Result<ControlPlaneMigration> {
        let all = self.objects(Some(namespace), Some(shoot)).await?;
        let missing = || Error::Missing(format!("Shoot {namespace}/{shoot} has no ControlPlaneMigration"));
        let key = |one: &ControlPlaneMigration| {
            (one.metadata.creation_timestamp.as_ref().map(|time| time.0), one.metadata.name.clone())
        };
        all.into_iter().max_by_key(key).ok_or_else(missing)
    }

    /// Creates a migration, or only asks whether that would be allowed. The answer is the object as it is stored.
    ///
    /// # Errors
    /// Those of the API server, such as those of its webhooks.
    pub async fn create(
        &self,
        namespace: &str,
        migration: &ControlPlaneMigration,
        dry_run: bool,
    ) -> Result<ControlPlaneMigration> {
        let api = Api::<ControlPlaneMigration>::namespaced(self.0.clone(), namespace);
        let params = PostParams { dry_run, ..PostParams::default() };
        within("create a ControlPlaneMigration", api.create(&params, migration)).await
    }

    /// Merges a patch into a migration.
    ///
    /// # Errors
    /// Those of the API server, such as those of its webhooks.
    pub async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<()> {
        let api = Api::<ControlPlaneMigration>::namespaced(self.0.clone(), namespace);
        let what = format!("change ControlPlaneMigration {namespace}/{name}");
        within(&what, api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await.map(drop)
    }

    /// The Events about an object, in no order; [`MOST_EVENTS`] at most.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn events(&self, namespace: &str, uid: &str) -> Result<Vec<Value>> {
        let api = Api::<Event>::namespaced(self.0.clone(), namespace);
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(MOST_EVENTS);
        let found = match within("list Events", api.list(&params)).await {
            // A server without kube-apiserver in front has none.
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            found => found?,
        };
        Ok(found.items.iter().filter_map(|event| serde_json::to_value(event).ok()).collect())
    }

    /// A Shoot as it is stored; `None` where there is none.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn shoot(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        self.read(CORE_GROUP, "v1beta1", "Shoot", Some(namespace), name).await
    }

    /// All objects of a kind of Gardener's core group with these labels, page by page. Most of them are [`MOST_OBJECTS`].
    ///
    /// # Errors
    /// Those of the API server, also where it does not serve the kind.
    pub async fn list(&self, kind: &str, namespace: Option<&str>, labels: &str) -> Result<Vec<Value>> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(CORE_GROUP, "v1beta1", kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        };
        let mut params = ListParams::default().limit(PAGE).labels(labels);
        let mut found = Vec::new();
        loop {
            let page = within(&format!("list {kind}s"), api.list(&params)).await?;
            found.extend(page.items.into_iter().filter_map(|object| serde_json::to_value(object).ok()));
            match page.metadata.continue_.filter(|token| !token.is_empty() && found.len() < MOST_OBJECTS) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Any object; `None` where there is none, also where its kind is not served.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn read(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        };
        let found = within(&format!("read {kind} {name}"), api.get_opt(name)).await?;
        Ok(found.and_then(|object| serde_json::to_value(object).ok()))
    }
}

async fn within<T>(what: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T> {
    match tokio::time::timeout(LIMIT, request).await {
        Ok(answer) => answer.map_err(|source| Error::new(what, source)),
        Err(_) => Err(Error::Late { what: what.to_owned() }),
    }
}
