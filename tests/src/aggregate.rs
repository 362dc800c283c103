//! Registration of an aggregated API server with a garden.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::garden::Garden;
use crate::wait::until;

/// kube-apiserver looks at an APIService every 30 seconds at the latest.
const AVAILABLE_DEADLINE: Duration = Duration::from_secs(60);

/// One group and version that a server behind the garden serves.
#[derive(Clone, Debug)]
pub struct Aggregation<'a> {
    /// API group that is served.
    pub group: &'a str,
    /// API version that is served.
    pub version: &'a str,
    /// Namespace of the Service; it is made when missing.
    pub namespace: &'a str,
    /// Name of the Service; the serving certificate must be for `<service>.<namespace>.svc`.
    pub service: &'a str,
    /// The port on localhost where the server (or a relay before it) listens.
    pub port: u16,
    /// The CA of its serving certificate, PEM.
    pub ca_pem: &'a str,
}

impl Aggregation<'_> {
    /// Registers it and waits until kube-apiserver finds it available.
    ///
    /// Errors: at the deadline, with the reason and message of the condition.
    pub async fn register(&self, garden: &Garden) -> Result<()> {
        garden.apply(&self.render()).await?;
        self.wait_until_available(garden).await
    }

    /// Waits until the condition Available is True, and calls are passed on.
    pub async fn wait_until_available(&self, garden: &Garden) -> Result<()> {
        self.wait_for_condition(garden).await?;
        // What passes calls on learns of the condition by a watch of its own, a little later than its readers.
        let path = format!("/apis/{}/{}", self.group, self.version);
        until(&format!("{path} to be passed on"), AVAILABLE_DEADLINE, async || {
            let answer = garden.api().get(&path).await?;
            ensure!(answer.status != 503, "{answer}");
            Ok(())
        })
        .await
    }

    async fn wait_for_condition(&self, garden: &Garden) -> Result<()> {
        let name = self.name();
        let what = format!("APIService {name} to be available");
        until(&what, AVAILABLE_DEADLINE, async || {
            let condition = self.observe_condition(garden).await?;
            match condition["status"].as_str() {
                Some("True") => Ok(()),
                _ => bail!(
                    "Available is {}: {} ({})",
                    condition["status"],
                    condition["message"],
                    condition["reason"]
                ),
            }
        })
        .await
    }

    /// The condition Available as it stands: `status`, `reason`, `message`.
    pub async fn observe_condition(&self, garden: &Garden) -> Result<Value> {
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{}", self.name());
        let object = garden.api().get(&path).await?.ok()?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition["type"] == "Available");
        found.context("the condition Available is not there yet")
    }

    /// Name of the APIService: `<version>.<group>`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    /// Namespace, Service and APIService. For a Service that is only a name kube-apiserver dials that name at the port of the APIService.
    pub fn render(&self) -> [Value; 3] {
        let service = json!({ "namespace": self.namespace, "name": self.service });
        let mut reference = service.clone();
        reference["port"] = self.port.into();
        [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace } }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": service,
                "spec": { "type": "ExternalName", "externalName": "localhost" },
            }),
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": { "name": self.name() },
                "spec": {
                    "group": self.group, "version": self.version, "service": reference,
                    "caBundle": STANDARD.encode(self.ca_pem),
                    "groupPriorityMinimum": 1000, "versionPriority": 15,
                },
            }),
        ]
    }
}
