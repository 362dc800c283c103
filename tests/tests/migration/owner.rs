//! `repot owner`: who may serve, and ownership that a person passes on.

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::dns_message::Values;
use repot_tests::landscape::etcd::MAIN;
use repot_tests::repot::program;
use repot_tests::tool::{self, Output};
use repot_tests::wait::until;
use tokio::process::Command;

use super::story::DEADLINE;
use super::world::{SEEDS, World, run, small};
use super::writer::Writer;

/// The exit code where the answer is no.
const NO: i32 = 3;

/// Runs a task of `repot owner` for the etcd of the Shoot in a seed.
pub async fn owner(world: &World, seed: &str, task: &str, more: &[&str]) -> Result<Output> {
    let mut command = Command::new(program()?);
    let kubeconfig = world.landscape.seed(seed)?.cluster.kubeconfig();
    command.args(["owner", task, "--namespace", &world.name().technical_id()]).args(more);
    // Members ask the zone at an address of the network of Pods.
    let server = world.landscape.dns.address().to_string();
    command.arg("--kubeconfig").arg(kubeconfig).args(["--server", &server]).env_remove("KUBECONFIG");
    tool::run(command, b"").await
}

/// Fails unless `repot owner` ends with this code and says all of this.
pub async fn ensure_says(
    world: &World,
    seed: &str,
    (task, more): (&str, &[&str]),
    (code, words): (i32, &[&str]),
) -> Result<()> {
    let output = owner(world, seed, task, more).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &output.stderr;
    ensure!(output.code == code, "{task} ended with {}: {said}", output.code);
    for word in words {
        ensure!(said.contains(word), "{task} does not say {word:?}: {said}");
    }
    println!("{said}");
    Ok(())
}

/// A DNS controller of a seed that was cut off may write the owner of its time when it is back. It revives nobody, and the destination
/// serves again by itself.
pub async fn ensure_earlier_one_does_not_come_back(
    world: &World,
    seed: &str,
    (earlier, own): (&str, &str),
) -> Result<()> {
    let (dns, namespace) = (&world.landscape.dns, world.name().technical_id());
    let path = format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{namespace}/etcds/{MAIN}");
    let etcd = world.landscape.seed(seed)?.cluster.api().get(&path).await?.ok()?;
    let name = etcd["spec"]["backup"]["ownerCheck"]["name"].as_str().context("no owner check")?;
    dns.set(name, 5, &Values::Txt(vec![earlier.to_owned()])).await?;
    until("the owner record to name the destination again", DEADLINE, async || {
        let texts = dns.resolver().texts(name).await?;
        ensure!(texts == [own], "{texts:?}");
        Ok(())
    })
    .await?;
    let api = world.api()?;
    until("the API to serve again", DEADLINE, async || {
        let answer = api.get("/readyz").await?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    })
    .await
}

/// When the command returns, no member of the earlier owner serves, and none does afterwards.
#[test]
#[ignore = "minutes, in make soak"]
fn person_passes_ownership_on_and_the_members_of_the_earlier_owner_stop() {
    run(async |env| {
        let world = World::create(env, "xi", small()).await?;
        let says =
            async |task, more, code, words| ensure_says(&world, SEEDS.0, (task, more), (code, words)).await;
        says("show", &[], 0, &["which may serve as \"seed-a/1\"", "Server ", "this Etcd"]).await?;
        says("check", &[], 0, &["is this Etcd"]).await?;
        let writer = Writer::start(world.api()?);
        until("some writes", DEADLINE, async || {
            let count = writer.acknowledged().len();
            ensure!(count > 20, "{count} were acknowledged");
            Ok(())
        })
        .await?;
        let to: &[&str] = &["--to", SEEDS.1];
        says("transfer", to, 0, &["would go to \"seed-b/2\"", "Nothing was changed"]).await?;
        says("transfer", &["--to", SEEDS.1, "--epoch", "1"], 1, &["epoch 1 is not higher than 1"]).await?;
        says("check", &[], 0, &["is this Etcd"]).await?;

        says(
            "transfer",
            &["--to", SEEDS.1, "--yes"],
            0,
            &["No member of an earlier owner can serve any more"],
        )
        .await?;
        let acknowledged = writer.acknowledged();
        says("check", &[], NO, &["not this Etcd, but \"seed-b/2\""]).await?;
        says("show", &[], NO, &["seed-b/2"]).await?;
        let after = writer.acknowledged();
        ensure!(after == acknowledged, "{:?} were acknowledged afterwards", after.difference(&acknowledged));
        // Who insists once does not do so for others.
        let kubectl = &world.landscape.seed(SEEDS.0)?.cluster;
        let records = ["get", "dnsrecords", "-n", &world.name().technical_id(), "-o", "yaml"];
        let records = kubectl.kubectl(records).await?.text()?;
        ensure!(!records.contains("confirmation.gardener.cloud/takeover"), "{records}");
        world.stop(SEEDS.0).await
    });
}
