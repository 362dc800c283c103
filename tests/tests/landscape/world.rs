//! What tests of one landscape share: objects by path, and operations of extension resources.

use anyhow::{Result, ensure};
use jiff::Timestamp;
use repot_tests::landscape::{DEADLINE, Seed};
use repot_tests::wait::until;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const EXTENSIONS: &str = "extensions.gardener.cloud/v1alpha1";

/// One extension resource of a seed.
pub struct ExtensionResource<'a> {
    seed: &'a Seed,
    path: String,
}

/// Makes the namespace of a Shoot and its Cluster in a seed.
pub async fn make_namespace(seed: &Seed, name: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let cluster = json!({
        "apiVersion": EXTENSIONS, "kind": "Cluster", "metadata": {"name": name},
        "spec": {"cloudProfile": {}, "seed": {}, "shoot": {}},
    });
    seed.cluster.apply(&[namespace, cluster]).await
}

impl<'a> ExtensionResource<'a> {
    /// Creates it with these annotations.
    pub async fn create(
        seed: &'a Seed,
        namespace: &str,
        (kind, name): (&str, &str),
        spec: Value,
        annotations: Value,
    ) -> Result<Self> {
        let found = Self::of(seed, namespace, kind, name);
        let object = json!({
            "apiVersion": EXTENSIONS, "kind": kind, "spec": spec,
            "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
        });
        seed.cluster.apply(&[object]).await?;
        Ok(found)
    }

    /// A resource that exists already.
    pub fn of(seed: &'a Seed, namespace: &str, kind: &str, name: &str) -> Self {
        let plural = format!("{}s", kind.to_lowercase());
        Self { seed, path: format!("/apis/{EXTENSIONS}/namespaces/{namespace}/{plural}/{name}") }
    }

    pub async fn get(&self) -> Result<Value> {
        self.seed.cluster.api().get(&self.path).await?.ok()
    }

    /// Requests an operation of the resource.
    pub async fn request(&self, operation: &str) -> Result<()> {
        let annotations = json!({"gardener.cloud/operation": operation, "gardener.cloud/timestamp": Timestamp::now().to_string()});
        self.patch("", &json!({"metadata": {"annotations": annotations}})).await
    }

    /// Writes `status.state` of the resource.
    pub async fn set_state(&self, state: &Value) -> Result<()> {
        self.patch("/status", &json!({"status": {"state": state}})).await
    }

    /// Waits until the last operation is of this type and in this state, and is not asked for any more where it succeeded.
    pub async fn until(&self, kind: &str, state: &str) -> Result<Value> {
        until(&format!("{kind} {state} of {}", self.path), DEADLINE, async || {
            let object = self.get().await?;
            let last = &object["status"]["lastOperation"];
            ensure!(last["type"] == kind && last["state"] == state, "{}", object["status"]);
            let requested = &object["metadata"]["annotations"]["gardener.cloud/operation"];
            ensure!(state != "Succeeded" || requested.is_null(), "{requested} is not served");
            Ok(object)
        })
        .await
    }

    /// Deletes it, with the confirmation, and waits until it is gone.
    pub async fn delete(&self) -> Result<()> {
        let confirmation = json!({"confirmation.gardener.cloud/deletion": "true"});
        self.patch("", &json!({"metadata": {"annotations": confirmation}})).await?;
        self.seed.cluster.api().delete(&self.path).await?.ok()?;
        until(&format!("{} to be gone", self.path), DEADLINE, async || {
            let answer = self.seed.cluster.api().get(&self.path).await?;
            ensure!(answer.status == 404, "{answer}");
            Ok(())
        })
        .await
    }

    async fn patch(&self, part: &str, patch: &Value) -> Result<()> {
        self.seed.cluster.api().patch(&format!("{}{part}", self.path), MERGE, patch).await?.ok().map(drop)
    }
}
