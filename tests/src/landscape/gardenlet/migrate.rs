//! What the gardenlet of the source does: it brings the ShootState to the garden, ends the API server, and gives up Shoot and BackupEntry.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{CORE, Worker, poll};

/// gardenlet has much to do before it ends the API server, and the outage does not begin earlier.
const BEFORE_API_STOPS: Duration = Duration::from_secs(10);

impl Worker {
    /// A migration, up to its last write.
    pub(super) async fn migrate(&mut self) -> Result<()> {
        self.report("Migrate", "Processing", 10, "Migration in progress.").await?;
        self.write_state().await?;
        sleep(BEFORE_API_STOPS).await;
        self.stop_api_server().await?;
        self.tell("API stopped".to_owned());
        self.report("Migrate", "Processing", 60, "Migration in progress.").await?;
        let shoot = self.garden.get(&self.shoot_path()).await?.ok()?;
        let patch = json!({"spec": {"seedName": shoot["spec"]["seedName"]}});
        self.patch(&self.entry_path(""), &patch).await?;
        // Its own controller is responsible until it gives the BackupEntry up.
        self.patch(&format!("{}/status", self.entry_path("")), &json!({"status": {"seedName": null}})).await
    }

    /// The last write: the Shoot is nobody's, so the gardenlet of its spec is woken.
    pub(super) async fn leave(&self) -> Result<()> {
        let status = json!({"status": {"seedName": null, "lastOperation": {
            "type": "Migrate", "state": "Succeeded", "progress": 100, "description": "Shoot cluster has been successfully migrated.",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }}});
        self.patch(&format!("{}/status", self.shoot_path()), &status).await
    }

    async fn write_state(&self) -> Result<()> {
        let path =
            format!("/api/v1/namespaces/{}/secrets?labelSelector=persist%3Dtrue", self.shoot.technical_id());
        let secrets = self.own.get(&path).await?.ok()?;
        let entry = |secret: &Value| {
            let (metadata, data) = (&secret["metadata"], &secret["data"]);
            json!({"name": metadata["name"], "type": "secret", "labels": metadata["labels"], "data": data})
        };
        let entries: Vec<Value> = secrets["items"].as_array().into_iter().flatten().map(entry).collect();
        let all = format!("{CORE}/namespaces/{}/shootstates", self.shoot.project_namespace());
        let state = json!({
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "ShootState", "metadata": {"name": self.shoot.name},
            "spec": {"gardener": entries},
        });
        let created = self.garden.post(&all, &state).await?;
        if created.status == 409 {
            return self.patch(&format!("{all}/{}", self.shoot.name), &json!({"spec": state["spec"]})).await;
        }
        created.ok().map(drop)
    }

    async fn stop_api_server(&self) -> Result<()> {
        let namespace = self.shoot.technical_id();
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/kube-apiserver");
        let deleted = self.own.delete(&path).await?;
        ensure!([200, 202, 404].contains(&deleted.status), "{deleted}");
        poll(|| self.is_gone(&path)).await
    }

    async fn is_gone(&self, path: &str) -> Result<()> {
        let found = self.own.get(path).await?;
        ensure!(found.status == 404, "{found}");
        Ok(())
    }
}
