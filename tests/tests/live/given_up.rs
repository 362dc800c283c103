//! The source is given up, because kube-apiservers of the destination do not come up on the etcd of both seeds.

use anyhow::{Result, ensure};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::whole::highly_available;
use crate::migration::prober::Prober;
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, World, run};

/// Refuses Pods of kube-apiservers in a seed.
const POLICY: &str = "no-kube-apiservers";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

#[test]
#[ignore = "minutes, in make soak"]
fn destination_serves_on_its_own_members_when_the_source_is_given_up() {
    run(async |env| {
        let world = World::create(env, "shrunk", highly_available()).await?;
        let before = world.workload().await?;
        let prober = Prober::start(world.api()?);
        refuse_api_servers(&world).await?;
        story::create_live(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", ("destination", "ApiServes")).await?;
        ensure!(prober.outage().is_zero(), "nobody had to wait before that: {:?}", prober.outage());
        story::change(&world, "move", &json!({"spec": {"forceShrinkEtcd": true}})).await?;
        until_given_up(&world).await?;
        let policy = format!("{POLICIES}/validatingadmissionpolicies/{POLICY}");
        world.landscape.seed(SEEDS.1)?.cluster.api().delete(&policy).await?.ok()?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        println!("{}", story::timeline(&migration).join("\n"));
        println!("the API was away for {:?}", prober.outage());
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}

/// Lets no kube-apiserver of the Shoot start at the destination, so that it does not come up, whatever the reason.
async fn refuse_api_servers(world: &World) -> Result<()> {
    let namespace = json!({"matchLabels": {"kubernetes.io/metadata.name": world.name().technical_id()}});
    let pods =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "matchConstraints": {"namespaceSelector": namespace, "resourceRules": [pods]},
            "validations": [{"expression": "object.metadata.?labels[?'app'].orValue('') != 'kube-apiserver'"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY}, "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    });
    world.landscape.seed(SEEDS.1)?.cluster.apply(&[policy, binding]).await
}

/// Waits until all members of the source have left, and says whether that was before the destination served.
async fn until_given_up(world: &World) -> Result<()> {
    until("members of the source to leave", DEADLINE, async || {
        let left = story::step(world, "move", ("destination", "SourceMembersRemoved")).await?;
        ensure!(left["state"] == "Succeeded", "{left}");
        Ok(())
    })
    .await?;
    let time = |step: &Value| step["completionTime"].as_str().map(str::to_owned);
    let left = time(&story::step(world, "move", ("destination", "SourceMembersRemoved")).await?);
    let serves = time(&story::step(world, "move", ("destination", "ApiServes")).await?);
    ensure!(serves.is_none() || serves >= left, "the destination served at {serves:?}, before {left:?}");
    Ok(())
}
