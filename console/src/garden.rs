//! Shoots and migrations of the garden, with the rights of the user.

use std::time::Duration;

use kube::{Client, api::ListParams};
use repot_controllers::migration::api::ControlPlaneMigration;
use serde_json::Value;

pub use crate::objects::{Error, Result};
use crate::{
    migration::Migration,
    objects::{CONTROL_PLANE_MIGRATION, EVENT, Kind, Objects, SHOOT, SHOOT_STATE, SHOOT_STATE_OF_CORE},
};

/// Most objects that are read at once. Where there are more, nobody knows which of them are missing, so that is an error.
pub const MOST_OBJECTS: usize = 50_000;
/// Most Events of one object that are read.
pub const MOST_EVENTS: usize = 2000;
/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The cluster with Shoots and ControlPlaneMigrations.
#[derive(Clone)]
pub struct Garden(Objects);

impl Garden {
    /// With the rights of this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Objects::new(client, LIMIT))
    }

    /// The client that requests go through.
    #[must_use]
    pub fn client(&self) -> &Client {
        self.0.client()
    }

    /// Migrations of all namespaces or of one, of all Shoots or of one, the oldest first.
    ///
    /// # Errors
    /// Those of the API server, also where it does not serve the kind; [`Error::Cut`].
    pub async fn migrations(&self, namespace: Option<&str>, shoot: Option<&str>) -> Result<Vec<Migration>> {
        let objects = self.objects(namespace, shoot).await?;
        let mut found: Vec<Migration> = objects.iter().map(Migration::new).collect();
        found.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        Ok(found)
    }

    pub(crate) async fn objects(
        &self,
        namespace: Option<&str>,
        shoot: Option<&str>,
    ) -> Result<Vec<ControlPlaneMigration>> {
        let params = match shoot {
            Some(shoot) => ListParams::default().fields(&format!("spec.shootRef.name={shoot}")),
            None => ListParams::default(),
        };
        let found = self.0.list(&CONTROL_PLANE_MIGRATION, namespace, params, MOST_OBJECTS).await?;
        found.whole(&CONTROL_PLANE_MIGRATION, MOST_OBJECTS)?.into_iter().map(typed).collect()
    }

    /// A migration by its name.
    ///
    /// # Errors
    /// Those of the API server, or that there is none.
    pub async fn migration(&self, namespace: &str, name: &str) -> Result<ControlPlaneMigration> {
        typed(self.0.require(&CONTROL_PLANE_MIGRATION, namespace, name).await?)
    }

    /// The migration of a Shoot that was created last.
    ///
    /// # Errors
    /// Those of the API server, or that there is none.
    pub async fn newest(&self, namespace: &str, shoot: &str) -> Result<ControlPlaneMigration> {
        let all = self.objects(Some(namespace), Some(shoot)).await?;
        let missing = || Error::Missing(format!("ControlPlaneMigration of Shoot {namespace}/{shoot}"));
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
        let object = serde_json::to_value(migration).map_err(|error| Error::form(&error))?;
        typed(self.0.create(&CONTROL_PLANE_MIGRATION, Some(namespace), &object, dry_run).await?)
    }

    /// Merges a patch into a migration.
    ///
    /// # Errors
    /// Those of the API server, such as those of its webhooks.
    pub async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<()> {
        self.0.merge(&CONTROL_PLANE_MIGRATION, namespace, name, patch).await
    }

    /// The Events about an object, in no order; [`MOST_EVENTS`] at most.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn events(&self, namespace: &str, uid: &str) -> Result<Vec<Value>> {
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        match self.0.list(&EVENT, Some(namespace), params, MOST_EVENTS).await {
            Ok(found) => Ok(found.items),
            // A server without kube-apiserver in front has none.
            Err(Error::NotServed { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// A Shoot as it is stored; `None` where there is none, also where Shoots are not served.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn shoot(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        self.0.get(&SHOOT, Some(namespace), name).await
    }

    /// The ShootState of a Shoot; `None` where there is none, also where ShootStates are not served.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn shoot_state(&self, namespace: &str, shoot: &str) -> Result<Option<Value>> {
        match self.0.get(&SHOOT_STATE, Some(namespace), shoot).await? {
            None => self.0.get(&SHOOT_STATE_OF_CORE, Some(namespace), shoot).await,
            found => Ok(found),
        }
    }

    /// All objects of a kind with these labels.
    ///
    /// # Errors
    /// Those of the API server; [`Error::Cut`].
    pub async fn list(&self, kind: &Kind, labels: &str) -> Result<Vec<Value>> {
        let params = ListParams::default().labels(labels);
        self.0.list(kind, None, params, MOST_OBJECTS).await?.whole(kind, MOST_OBJECTS)
    }
}

fn typed(object: Value) -> Result<ControlPlaneMigration> {
    serde_json::from_value(object).map_err(|error| Error::form(&error))
}
