//! The configuration is read again while running.

use anyhow::ensure;
use repot_tests::encryption::{Plugin, provider, write_config};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::json;

use super::world::{DEADLINE, Replica, World};

const CONFIG: &str = "apiserver_encryption_config_controller_last_config_info";
const TIME: &str = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds";

async fn until_refused(replica: &Replica, before: f64) -> anyhow::Result<()> {
    until("the configuration to be refused", DEADLINE, async || {
        ensure!(replica.reloads("failure").await? > before, "it is not");
        Ok(())
    })
    .await
}

#[test]
fn only_a_configuration_that_works_is_taken_and_the_earlier_one_stays() {
    run(async |env| {
        let (old, new) = (provider("aesgcm", "old")?, provider("secretbox", "new")?);
        let world = World::start(env, 1, &[&old], "10ms").await?;
        let replica = &world.replicas[0];
        let mut names = vec!["one".to_owned()];
        replica.create("one").await?;
        ensure!(replica.metric(CONFIG, &[]).await? == Some(1.0), "the configuration is not told");
        let absent = json!({"kms": {
            "apiVersion": "v2", "name": "absent", "endpoint": "unix:///nowhere/kms.sock", "timeout": "10ms",
        }});
        let bad = repot_tests::encryption::config(&[&absent, &old]).to_string();
        for (turn, text) in ["", "kind: [", "kind: EncryptionConfiguration\n", &bad].into_iter().enumerate() {
            let before = replica.reloads("failure").await?;
            write_config(&replica.file, text)?;
            until_refused(replica, before).await?;
            let name = format!("bad-{turn}");
            replica.create(&name).await?;
            names.push(name);
            world.read_all(&names).await?;
        }
        ensure!(replica.reloads("success").await? == 0.0, "a bad configuration was taken");
        let health = replica.api.get("/readyz").await?;
        ensure!(health.status == 200, "what was not taken makes no server unready: {health}");
        ensure!(
            world.wrapped_by().await?.iter().all(|key| key == "k8s:enc:aesgcm:v1:old"),
            "another key was used"
        );

        replica.reconfigure(&[&new, &old]).await?;
        ensure!(replica.metric(TIME, &[("status", "success")]).await? > Some(1e9), "no time of the reload");
        ensure!(
            replica.metric(CONFIG, &[("hash", "sha256")]).await?.is_none(),
            "the whole hash is the label"
        );
        ensure!(replica.write_back("one").await?, "stale data is written again though it is equal");
        ensure!(!replica.write_back("one").await?, "and only once");
        ensure!(world.wrapped_by().await?.contains("k8s:enc:secretbox:v1:new"), "the new key is not used");
        world.read_all(&names).await
    });
}

#[test]
fn a_service_that_comes_late_is_taken_when_it_is_well() {
    run(async |env| {
        let old = provider("aesgcm", "old")?;
        let world = World::start(env, 1, &[&old], "10ms").await?;
        let replica = &world.replicas[0];
        replica.create("one").await?;
        let mut plugin = Plugin::start(env).await?;
        plugin.ask("healthz ill").await?;
        let before = replica.reloads("failure").await?;
        let providers = repot_tests::encryption::config(&[&plugin.provider("main"), &old]).to_string();
        write_config(&replica.file, &providers)?;
        until_refused(replica, before).await?;
        plugin.ask("healthz ok").await?;
        until("the configuration to be taken", DEADLINE, async || {
            ensure!(replica.reloads("success").await? > 0.0, "it is not");
            Ok(())
        })
        .await?;
        ensure!(replica.write_back("one").await?, "stale data is written again though it is equal");
        ensure!(world.wrapped_by().await?.contains("k8s:enc:kms:v2:main"), "the service is not used");
        Ok(())
    });
}
