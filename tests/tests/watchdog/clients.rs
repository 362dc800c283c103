//! kubectl and client-go through the proxy, as controllers have it.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use repot_tests::clientgo::ClientGo;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

use super::world::{DEADLINE, OTHER, World, shared_seed};

#[test]
fn kubectl_applies_and_watches_through_the_proxy_and_prints_who_the_owner_is() {
    run(async |env| {
        let seed = shared_seed()?;
        let world = World::make(env, &seed, "shoot--dev--kubectl", &[]).await?;
        let map = |value: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value},
                "metadata": {"name": "a", "namespace": world.namespace},
            })
            .to_string()
        };
        let apply =
            async |value: &str| world.kubectl.run_with(["apply", "-f", "-"], map(value).as_bytes()).await;
        apply("1").await?.text()?;
        world.kubectl.apply(&[serde_json::from_str(&map("1"))?]).await?;
        let get = ["get", "configmap", "a", "-n", &world.namespace, "-w", "-o", "jsonpath={.data.a}{'\\n'}"];
        let mut command = world.kubectl.command(get);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut next = async || timeout(DEADLINE, lines.next_line()).await??.context("the watch ended");
        ensure!(next().await? == "1");
        world.lose().await?;
        world.until_refused(OTHER).await?;
        let refused = apply("2").await?;
        let words = format!("names {OTHER}, and this seed is seed-a/1");
        ensure!(!refused.succeeded() && refused.stderr.contains(&words), "{}", refused.stderr);
        ensure!(refused.stderr.contains("ServiceUnavailable"), "{}", refused.stderr);
        let refused = world.kubectl.run(["delete", "namespace", &world.namespace, "--wait=false"]).await?;
        ensure!(!refused.succeeded(), "the Namespace is being deleted");
        // The watch goes on, and with the ownership the writes.
        world.regain(&seed).await?;
        world.until_written().await?;
        apply("3").await?.text()?;
        ensure!(next().await? == "3");
        Ok(())
    });
}

/// Informers, watch lists and a writer of client-go: each informer equals a LIST, and each acknowledged write was an event.
#[test]
fn informers_of_client_go_are_complete_through_the_proxy() {
    run(async |env| {
        let seed = shared_seed()?;
        let world = World::make(env, &seed, "shoot--dev--informers", &[]).await?;
        let kubeconfig = world.dir.join("kubeconfig");
        let namespace = format!("--namespace={}", world.namespace);
        let flags = [namespace.as_str(), "--modes=list,watchlist"];
        let mut client = ClientGo::start(env, "follow", &kubeconfig, &flags)?;
        client.answer().await?;
        client.ask("write").await?;
        let written = requests(&world, "written").await?;
        until_more(&world, "written", written + 100.0).await?;
        let rest = client.ask("rest").await?;
        client.ask("verify").await.with_context(|| format!("it wrote {rest}"))?;
        // Its writes are refused from now on, and it says why.
        world.lose().await?;
        world.until_refused(OTHER).await?;
        let before = requests(&world, "refused").await?;
        client.ask("write").await?;
        until_more(&world, "refused", before).await?;
        let refused = client.ask("rest").await;
        let words = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(words.contains(OTHER), "it says {words}");
        Ok(())
    });
}

/// How many requests of the controller ended with a result, by the metrics of the proxy.
async fn requests(world: &World, result: &str) -> Result<f64> {
    world.metric(&format!("repot_watchdog_requests_total{{result=\"{result}\"}}")).await
}

/// Waits until more than `count` requests ended with a result.
async fn until_more(world: &World, result: &str, count: f64) -> Result<()> {
    until("requests of client-go", DEADLINE, async || {
        let now = requests(world, result).await?;
        ensure!(now > count, "{now} {result}, {count} at first");
        Ok(())
    })
    .await
}
