//! The policy of `deploy/policies`: nobody deletes an Infrastructure while the networks of a zone are cut off.

use anyhow::{Result, ensure};
use repot_tests::garden::Garden;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{DEADLINE, start_seed};

const API: &str = "/apis/extensions.gardener.cloud/v1alpha1/namespaces";
const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/policies/keep-infrastructure.yaml");
const ISOLATED: &str = "shoot--dev--isolated";
const OTHER: &str = "shoot--dev--other";

#[test]
fn infrastructure_stays_while_the_networks_of_a_zone_are_cut_off_and_no_longer() {
    run(async |env| {
        let seed = start_seed(env).await?;
        seed.kubectl(["apply", "-f", POLICY]).await?.text()?;
        for namespace in [ISOLATED, OTHER] {
            seed.kubectl(["create", "namespace", namespace]).await?.text()?;
            create(&seed, namespace, "one").await?;
        }
        let spec = json!({"type": "local", "region": "eu", "isolatedZoneID": "euc1-az1"});
        let subnet = object("SubnetIsolation", "isolated-zone", spec);
        seed.api().post(&format!("{API}/{ISOLATED}/subnetisolations"), &subnet).await?.ok()?;
        // It takes a moment until the policy has seen it. A deletion that is not meant changes nothing.
        let dry = format!("{API}/{ISOLATED}/infrastructures/one?dryRun=All");
        until("the deletion to be refused", DEADLINE, async || {
            let answer = seed.api().delete(&dry).await?;
            ensure!(answer.status == 403, "{answer}");
            ensure!(answer.to_string().contains("the networks of zone euc1-az1 are cut off"), "{answer}");
            Ok(())
        })
        .await?;
        ensure!(delete(&seed, OTHER).await? == 200, "the one of another Shoot is kept, too");

        create(&seed, ISOLATED, "moved").await?;
        let path = format!("{API}/{ISOLATED}/infrastructures/moved");
        let status = json!({"status": {"lastOperation": {
            "type": "Migrate", "state": "Succeeded", "description": "", "progress": 100,
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }}});
        seed.api().patch(&format!("{path}/status"), "application/merge-patch+json", &status).await?.ok()?;
        ensure!(seed.api().delete(&path).await?.status == 200, "one that has left is kept, too");

        seed.api().delete(&format!("{API}/{ISOLATED}/subnetisolations/isolated-zone")).await?.ok()?;
        until("the deletion to pass", DEADLINE, async || {
            let status = delete(&seed, ISOLATED).await?;
            ensure!(status == 200, "{status}");
            Ok(())
        })
        .await
    });
}

/// A seed whose SubnetIsolations are not installed yet, or not any more.
#[test]
fn infrastructure_can_be_deleted_where_the_kind_of_the_policy_is_missing() {
    run(async |env| {
        let seed = start_seed(env).await?;
        let kind = "crd/subnetisolations.extensions.gardener.cloud";
        seed.kubectl(["delete", kind]).await?.text()?;
        seed.kubectl(["apply", "-f", POLICY]).await?.text()?;
        seed.kubectl(["create", "namespace", OTHER]).await?.text()?;
        create(&seed, OTHER, "one").await?;
        // API servers take up policies one after the other: the one before is in force where this one is.
        let kept = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}});
        seed.apply(&[kept]).await?;
        seed.apply(&later_policy()).await?;
        until("a later policy to be in force", DEADLINE, async || {
            let answer = seed.api().delete("/api/v1/namespaces/default/configmaps/kept?dryRun=All").await?;
            ensure!(answer.status == 403, "{answer}");
            Ok(())
        })
        .await?;
        let status = delete(&seed, OTHER).await?;
        ensure!(status == 200, "{status}");
        Ok(())
    });
}

/// Refuses to delete ConfigMaps.
fn later_policy() -> [Value; 2] {
    let (version, name) = ("admissionregistration.k8s.io/v1", "later");
    let rule = json!({"apiGroups": [""], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["configmaps"]});
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false", "reason": "Forbidden"}],
    });
    [
        json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec,
        }),
        json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

/// An Infrastructure that nobody works on.
async fn create(seed: &Garden, namespace: &str, name: &str) -> Result<()> {
    let secret = json!({"name": "cloudprovider", "namespace": namespace});
    let spec = json!({"type": "local", "region": "eu", "secretRef": secret});
    let object = object("Infrastructure", name, spec);
    seed.api().post(&format!("{API}/{namespace}/infrastructures"), &object).await?.ok().map(drop)
}

async fn delete(seed: &Garden, namespace: &str) -> Result<u16> {
    Ok(seed.api().delete(&format!("{API}/{namespace}/infrastructures/one")).await?.status)
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}
