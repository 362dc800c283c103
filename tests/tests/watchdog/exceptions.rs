//! What passes without ownership, and what is not a Shoot's.

use anyhow::ensure;
use repot_tests::dns::ZONE;
use repot_tests::run;
use serde_json::json;

use super::world::{OTHER, World, apply_extension, shared_seed};

const OWNERS: &str = "/apis/dns.gardener.cloud/v1alpha1/dnsowners";

#[test]
fn migration_of_one_object_opens_this_object_only() {
    run(async |env| {
        let seed = shared_seed()?;
        let namespace = "shoot--dev--migrate";
        let world = World::make(env, &seed, namespace, &["--extension-kinds=infrastructures"]).await?;
        let spec = || json!({"type": "local", "region": "r", "secretRef": {}});
        for (name, operation) in [("a", "migrate"), ("b", "reconcile")] {
            apply_extension(&seed, ("Infrastructure", namespace, name), operation, spec()).await?;
        }
        world.lose().await?;
        world.until_refused(OTHER).await?;
        let patch = async |name: &str| {
            let path = format!(
                "/apis/extensions.gardener.cloud/v1alpha1/namespaces/{namespace}/infrastructures/{name}"
            );
            let label = json!({"metadata": {"labels": {"a": "b"}}});
            anyhow::Ok(world.api.patch(&path, "application/merge-patch+json", &label).await?.status)
        };
        ensure!(patch("a").await? == 200, "the migration is refused");
        ensure!(patch("b").await? == 503, "the reconcile passes");
        ensure!(patch("c").await? == 503, "an object that is not there passes");
        ensure!(
            world.write("x").await?.status == 503,
            "another object of the controller is not migrated yet"
        );
        apply_extension(&seed, ("Infrastructure", namespace, "b"), "migrate", spec()).await?;
        ensure!(patch("b").await? == 200, "the migration is refused");
        world.write("x").await?.ok()?;
        let answer = world.api.delete(&format!("/api/v1/namespaces/{namespace}")).await?;
        ensure!(answer.status == 503, "{answer}");
        Ok(())
    });
}

#[test]
fn owner_record_is_written_by_who_is_not_the_owner_yet() {
    run(async |env| {
        let seed = shared_seed()?;
        let namespace = "shoot--dev--record";
        let world = World::make(env, &seed, namespace, &[]).await?;
        for (name, host) in [("owner", "owner"), ("api", "api")] {
            let spec = json!({
                "type": "local", "name": format!("{host}.{ZONE}"), "recordType": "TXT", "values": ["x"],
                "secretRef": {"name": "dns", "namespace": namespace},
            });
            apply_extension(&seed, ("DNSRecord", namespace, name), "reconcile", spec).await?;
        }
        world.lose().await?;
        world.until_refused(OTHER).await?;
        let patch = async |name: &str| {
            let path =
                format!("/apis/extensions.gardener.cloud/v1alpha1/namespaces/{namespace}/dnsrecords/{name}");
            let label = json!({"metadata": {"labels": {"a": "b"}}});
            anyhow::Ok(world.api.patch(&path, "application/merge-patch+json", &label).await?.status)
        };
        ensure!(patch("owner").await? == 200, "nobody could ever become the owner");
        ensure!(patch("api").await? == 503, "another record passes");
        Ok(())
    });
}

/// dns-external: a DNSOwner is in no Namespace, and its name begins with that of the control plane.
#[test]
fn objects_in_no_namespace_belong_to_the_shoot_in_their_name() {
    run(async |env| {
        let seed = shared_seed()?;
        let world = World::make(env, &seed, "shoot--dev--dns", &[]).await?;
        let owner = |name: &str| json!({"apiVersion": "dns.gardener.cloud/v1alpha1", "kind": "DNSOwner", "metadata": {"name": name}});
        world.api.post(OWNERS, &owner("shoot--dev--dns-internal")).await?.ok()?;
        world.lose().await?;
        world.until_refused(OTHER).await?;
        for answer in [
            world.api.post(OWNERS, &owner("shoot--dev--dns-external")).await?,
            world.api.delete(&format!("{OWNERS}/shoot--dev--dns-internal")).await?,
            world.api.post("/api/v1/namespaces", &json!({"metadata": {"name": "shoot--dev--dns"}})).await?,
        ] {
            ensure!(answer.status == 503, "{answer}");
        }
        for name in ["shoot--dev--dnsx-internal", "somebody"] {
            world.api.post(OWNERS, &owner(name)).await?.ok()?;
            world.api.delete(&format!("{OWNERS}/{name}")).await?.ok()?;
        }
        let all = world.api.delete(OWNERS).await?;
        ensure!(all.status == 403 && all.to_string().contains("by their names"), "{all}");
        let yaml =
            world.api.request(reqwest::Method::POST, OWNERS).header("content-type", "application/yaml");
        let yaml = yaml.body("metadata: {name: shoot--dev--dns-external}").send().await?;
        ensure!(yaml.status() == 415, "{}", yaml.status());
        // Namespaces without an owner check, and questions, are nobody's.
        world
            .api
            .post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"generateName": "a-"}}))
            .await?
            .ok()?;
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
        });
        world.api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &question).await?.ok()?;
        ensure!(
            seed.api().get(&format!("{OWNERS}/shoot--dev--dns-internal")).await?.status == 200,
            "it is gone"
        );
        Ok(())
    });
}
