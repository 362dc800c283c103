//! gardener-controller-manager beside a [`crate::gardener::Gardener`]: it maintains Shoots, makes the namespaces of Projects, says
//! which seeds are dead, and whether a destination is ready for a migration.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::garden::Garden;
use crate::gardener::Gardener;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::{binaries, port};

const START_DEADLINE: Duration = Duration::from_secs(120);
const PROGRAM: &str = "gardener-controller-manager";
/// Where gardenlets keep their Leases.
const LEASES: &str = "gardener-system-seed-lease";
/// A seed whose Lease is older is dead. Gardener's default is 40 s.
const MONITOR_PERIOD: &str = "5s";

/// A running gardener-controller-manager, with every controller that it has.
pub struct Controllers {
    _process: Process,
}

impl Controllers {
    /// Starts it; ready means that its informers have synced with gardener-apiserver.
    pub async fn start(env: &TestEnv, garden: &Garden, _: &Gardener) -> Result<Self> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASES}});
        garden.apply(&[namespace]).await?;
        let (health, metrics) = (port::reserve()?, port::reserve()?);
        let kubeconfig = garden.user_kubeconfig(PROGRAM, &["system:masters"])?;
        let file = env.path().join("gardener-controller-manager.yaml");
        let own = |port: u16| json!({"bindAddress": "127.0.0.1", "port": port});
        let config = json!({
            "apiVersion": "controllermanager.config.gardener.cloud/v1alpha1", "kind": "ControllerManagerConfiguration",
            "gardenClientConnection": {"kubeconfig": kubeconfig.display().to_string()},
            "leaderElection": {"leaderElect": false},
            "server": {"healthProbes": own(health), "metrics": own(metrics)},
            "controllers": {"seed": {"syncPeriod": "1s", "monitorPeriod": MONITOR_PERIOD}},
        });
        fs::write(&file, config.to_string())?;
        let spec = Spec::new(PROGRAM, binaries::find(PROGRAM)?).flag("config", &file);
        let mut process = Process::start(env, spec)?;
        let url = format!("http://127.0.0.1:{health}/readyz");
        process
            .ready(START_DEADLINE, async || {
                let status = reqwest::get(&url).await?.status();
                ensure!(status == 200, "{status}");
                Ok(())
            })
            .await?;
        Ok(Self { _process: process })
    }
}

/// The Lease of a seed whose gardenlet lives for as long as any test.
pub fn lease(seed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": LEASES, "name": seed},
        "spec": {"holderIdentity": seed, "leaseDurationSeconds": 2, "renewTime": "2199-01-01T00:00:00.000000Z"},
    })
}
