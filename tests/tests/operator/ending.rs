//! Controllers that are told to stop while kube-apiserver does not answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::operator::prepare;
use repot_tests::process::{Process, Spec};
use repot_tests::{port, repot, run};
use serde_json::json;

use super::world::spec;

const READY: Duration = Duration::from_secs(60);
/// What a kubelet grants a Pod that is to end.
const GRACE: Duration = Duration::from_secs(30);
/// So many that a reconcile is under way at any time.
const ETCDS: usize = 20;

#[test]
fn controllers_end_before_a_kubelet_kills_them_while_kube_apiserver_hangs() {
    run(async |env| {
        let garden = Garden::start_with(env, GardenOptions::default()).await?;
        prepare(&garden).await?;
        let health = port::reserve()?;
        let controllers = Spec::new("controllers", repot::program()?)
            .arg("controllers")
            .flag("kubeconfig", garden.kubeconfig())
            .flag("image", "none")
            .flag("health-address", format!("127.0.0.1:{health}"));
        let mut controllers = Process::start(env, controllers)?;
        let probe = async || {
            let url = format!("http://127.0.0.1:{health}/readyz");
            reqwest::get(url).await?.error_for_status().map(drop).context("not ready")
        };
        controllers.ready(READY, probe).await?;
        let etcds: Vec<_> = (0..ETCDS)
            .map(|index| {
                let metadata = json!({"namespace": "default", "name": format!("e{index}")});
                json!({"apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": metadata, "spec": spec(1)})
            })
            .collect();
        garden.apply(&etcds).await?;

        garden.apiserver_process().pause();
        let told = Instant::now();
        let ended = controllers.stop(GRACE).await;
        garden.apiserver_process().resume();
        let (ended, took) = (ended?, told.elapsed());
        // Without a reconcile that hangs, they end at once and with success, and this shows nothing.
        ensure!(ended.code() == Some(1), "they ended with {ended} after {took:?}");
        ensure!(controllers.log().contains("reconciles did not end within 20 s"), "{}", controllers.log());
        println!("they ended {} s after the signal", took.as_secs());
        Ok(())
    });
}
