//! A namespace of one test in a garden that tests share. What runs in it ends with the test, so that it takes nothing from the next.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::garden::Garden;
use crate::kubectl::Kubectl;
use crate::wait::until;

/// How long anything may take in a garden that many tests use.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// A namespace; dropping it deletes the namespace, and waits for nothing.
pub struct TestNamespace {
    kubectl: Kubectl,
    /// Name of the namespace.
    pub namespace: String,
}

impl TestNamespace {
    /// Makes one, in which Pods may be made.
    pub async fn make(garden: &Garden, namespace: &str) -> Result<Self> {
        garden.kubectl(["create", "namespace", namespace]).await?.text()?;
        let place = Self { kubectl: garden.kubectl_tool().clone(), namespace: namespace.to_owned() };
        // Pods are refused before kube-controller-manager has made it.
        until("the service account", DEADLINE, async || {
            place.get("serviceaccount", "default").await.map(drop)
        })
        .await?;
        Ok(place)
    }

    /// Applies objects in the namespace.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        let mut objects = objects.to_vec();
        for object in &mut objects {
            object["metadata"]["namespace"] = self.namespace.as_str().into();
        }
        self.kubectl.apply(&objects).await
    }

    /// What kubectl says in the namespace.
    ///
    /// Errors: when it fails.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let all = args.iter().copied().chain(["-n", &self.namespace]);
        self.kubectl.run(all).await?.text()
    }

    /// Reads an object; an error if it is missing.
    pub async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&["get", kind, name, "-o", "json"]).await?)?)
    }

    /// Waits until an object is as the check wants it, and gives it.
    pub async fn until(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        until(&format!("{kind} {name}: {what}"), DEADLINE, async || {
            let object = self.get(kind, name).await?;
            ensure!(check(&object), "it is {}", object["status"]);
            Ok(object)
        })
        .await
    }

    /// Waits until there is no such object.
    pub async fn until_gone(&self, kind: &str, name: &str) -> Result<()> {
        until(&format!("{kind} {name} to be gone"), DEADLINE, async || {
            let found = self.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "name"]).await?;
            ensure!(found.is_empty(), "it is there");
            Ok(())
        })
        .await
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let delete = ["delete", "namespace", &self.namespace, "--wait=false"];
        let mut command = self.kubectl.command(delete);
        // Where the garden is gone already, there is nothing to delete.
        let _ =
            command.as_std_mut().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
