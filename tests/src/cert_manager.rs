//! cert-manager: its controllers, its cainjector and its kinds (`tests/go/certmanager`), in a garden.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::binaries;
use crate::garden::Garden;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;

const START_DEADLINE: Duration = Duration::from_secs(60);

/// cert-manager as administrator of a garden. It ends when this is dropped.
pub struct CertManager {
    _process: Process,
}

impl CertManager {
    /// Makes its CustomResourceDefinitions, starts it and waits until its caches are filled.
    pub async fn start(env: &TestEnv, garden: &Garden) -> Result<Self> {
        let crds = binaries::find("certmanager-crds.yaml")?.display().to_string();
        // Server-side: an annotation has less room than some of them need.
        garden.kubectl(&["apply", "--server-side", "-f", &crds]).await?.text()?;
        let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        garden.kubectl(&established).await?.text()?;
        let spec = Spec::new("certmanager", binaries::find("certmanager")?)
            .flag("kubeconfig", garden.kubeconfig())
            .env("HOME", env.path());
        let mut process = Process::start(env, spec)?;
        let output = process.output_path();
        let ready = async || {
            ensure!(std::fs::read_to_string(&output)?.lines().any(|line| line == "ready"), "it is not ready");
            Ok(())
        };
        process.ready(START_DEADLINE, ready).await?;
        Ok(Self { _process: process })
    }

    /// Asks for a new certificate as `cmctl renew` does: by the condition Issuing of a Certificate.
    ///
    /// Errors: when there is no such Certificate, or it changes meanwhile.
    pub async fn renew(&self, garden: &Garden, namespace: &str, name: &str) -> Result<()> {
        let path = format!("/apis/cert-manager.io/v1/namespaces/{namespace}/certificates/{name}");
        let mut certificate = garden.api().get(&path).await?.ok()?;
        let issuing = json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "asked for by a test",
            "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "observedGeneration": certificate["metadata"]["generation"],
        });
        let conditions = certificate["status"]["conditions"].as_array_mut().context("no conditions")?;
        conditions.retain(|condition: &Value| condition["type"] != "Issuing");
        conditions.push(issuing);
        garden.api().put(&format!("{path}/status"), &certificate).await?.ok().map(drop)
    }
}
