//! kube-controller-manager deletes, collects, counts and migrates what Repot serves, as it does with what kube-apiserver serves.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::http::{Answer, Api};
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{Shared, TestEnv, run, start_shared};
use serde_json::{Value, json};

use super::rounds;
use crate::shootstate::world::{GROUP, VERSION, collection, small};

/// Its controllers look at discovery every half minute, and some work only at every second look.
const DEADLINE: Duration = Duration::from_secs(120);

/// A garden with Repot behind it and controllers that found it there at their start.
struct Landscape {
    garden: Garden,
    _repot: Repot,
}

static LANDSCAPE: Shared<Landscape> = Shared::new(|env| start_shared(Landscape::start(env)));

impl Landscape {
    async fn start(env: &TestEnv) -> Result<Self> {
        let gate = "--feature-gates=StorageVersionMigrator=true".to_owned();
        let runtime = "--runtime-config=storagemigration.k8s.io/v1beta1=true".to_owned();
        let options =
            GardenOptions { apiserver_flags: vec![gate.clone(), runtime], ..GardenOptions::default() };
        let mut garden = Garden::start_with(env, options).await?;
        let keys = write_encryption_config(env.path())?;
        let flags = [
            format!("--storage=embedded:{}", env.make_dir("store")?.display()),
            format!("--encryption-provider-config={}", keys.display()),
        ];
        let repot = Repot::behind(env, &garden, &[(GROUP, VERSION)], flags).await?;
        garden.start_controller_manager(env, &[gate]).await?;
        Ok(Self { garden, _repot: repot })
    }
}

/// A namespace of a test's own, through kube-apiserver.
struct TestNamespace {
    api: Api,
    namespace: String,
}

impl TestNamespace {
    async fn make(namespace: &str) -> Result<Self> {
        let api = LANDSCAPE.value()?.garden.api().clone();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        api.post("/api/v1/namespaces", &object).await?.ok()?;
        Ok(Self { api, namespace: namespace.to_owned() })
    }

    fn collection(&self, kind: Kind) -> String {
        match kind {
            Kind::ShootState => collection(&self.namespace),
            Kind::ConfigMap => format!("/api/v1/namespaces/{}/configmaps", self.namespace),
        }
    }

    async fn create(&self, kind: Kind, name: &str, owner: Option<&Value>) -> Result<Value> {
        let mut object = match kind {
            Kind::ShootState => small(name, &json!(name)),
            Kind::ConfigMap => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
        };
        object["metadata"]["namespace"] = json!(self.namespace);
        if let Some(owner) = owner {
            object["metadata"]["ownerReferences"] = json!([reference(owner)]);
        }
        self.api.post(&self.collection(kind), &object).await?.ok()
    }

    async fn get(&self, kind: Kind, name: &str) -> Result<Answer> {
        self.api.get(&format!("{}/{name}", self.collection(kind))).await
    }

    async fn wait_until_gone(&self, kind: Kind, name: &str) -> Result<()> {
        until(&format!("{kind:?} {name} to be gone"), DEADLINE, async || {
            let answer = self.get(kind, name).await?;
            ensure!(answer.status == 404, "{answer}");
            Ok(())
        })
        .await
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    ShootState,
    ConfigMap,
}

const KINDS: [Kind; 2] = [Kind::ShootState, Kind::ConfigMap];

fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    })
}

#[test]
fn namespace_with_five_hundred_shoot_states_is_deleted() {
    run(async |_| {
        let place = TestNamespace::make("five-hundred").await?;
        let names = (0..rounds(500, 5000)).map(|n| format!("s-{n}"));
        let created = stream::iter(names).map(async |name| place.create(Kind::ShootState, &name, None).await);
        created.buffer_unordered(8).try_for_each(async |_| Ok(())).await?;
        let path = format!("/api/v1/namespaces/{}", place.namespace);
        place.api.delete(&path).await?.ok()?;
        until("the namespace to be gone", DEADLINE, async || {
            let answer = place.api.get(&path).await?;
            ensure!(answer.status == 404, "{}", answer.json()?["status"]);
            Ok(())
        })
        .await?;
        let list = place.api.get(&place.collection(Kind::ShootState)).await?.ok()?;
        ensure!(list["items"] == json!([]), "objects outlived their namespace");
        Ok(())
    });
}

#[test]
fn namespace_waits_for_the_finalizer_of_a_shoot_state() {
    run(async |_| {
        let place = TestNamespace::make("held").await?;
        place.create(Kind::ShootState, "free", None).await?;
        place.create(Kind::ShootState, "kept", None).await?;
        let object = format!("{}/kept", place.collection(Kind::ShootState));
        let merge = "application/merge-patch+json";
        let hold = json!({"metadata": {"finalizers": ["repot.dev/oracle"]}});
        place.api.patch(&object, merge, &hold).await?.ok()?;
        let path = format!("/api/v1/namespaces/{}", place.namespace);
        place.api.delete(&path).await?.ok()?;
        until("the namespace to say what it waits for", DEADLINE, async || {
            let status = place.api.get(&path).await?.ok()?["status"].clone();
            let conditions = status["conditions"].as_array().context("no conditions yet")?;
            let found = conditions.iter().find(|c| c["type"] == "NamespaceFinalizersRemaining");
            let message = found.context("not that one")?["message"].as_str().unwrap_or_default();
            ensure!(message.contains("repot.dev/oracle in 1 resource instances"), "{status}");
            Ok(())
        })
        .await?;
        place.wait_until_gone(Kind::ShootState, "free").await?;
        let late = small("late", &json!(1)).to_string().replace("\"default\"", "\"held\"");
        let refused =
            place.api.post(&place.collection(Kind::ShootState), &serde_json::from_str(&late)?).await?;
        let causes = refused.json()?["details"]["causes"].clone();
        ensure!(refused.status == 403 && causes[0]["reason"] == "NamespaceTerminating", "{refused}");
        place.api.patch(&object, merge, &json!({"metadata": {"finalizers": null}})).await?.ok()?;
        until("the namespace to be gone", DEADLINE, async || match place.api.get(&path).await?.status {
            404 => Ok(()),
            status => bail!("it answers {status}"),
        })
        .await
    });
}

/// An owner of a kind with a dependent of each kind.
async fn own(place: &TestNamespace, kind: Kind, name: &str) -> Result<()> {
    let owner = place.create(kind, name, None).await?;
    for dependent in KINDS {
        place.create(dependent, &format!("{name}-dependent"), Some(&owner)).await?;
    }
    Ok(())
}

async fn delete_owner(place: &TestNamespace, kind: Kind, name: &str, policy: &str) -> Result<Value> {
    own(place, kind, name).await?;
    let path = format!("{}/{name}?propagationPolicy={policy}", place.collection(kind));
    place.api.delete(&path).await?.ok()
}

#[test]
fn background_deletion_takes_dependents_after_their_owner() {
    run(async |_| {
        let place = TestNamespace::make("background").await?;
        for kind in KINDS {
            let name = format!("{kind:?}").to_lowercase();
            delete_owner(&place, kind, &name, "Background").await?;
            ensure!(place.get(kind, &name).await?.status == 404, "the owner waits for its dependents");
            for dependent in KINDS {
                place.wait_until_gone(dependent, &format!("{name}-dependent")).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn foreground_deletion_takes_dependents_before_their_owner() {
    run(async |_| {
        let place = TestNamespace::make("foreground").await?;
        for kind in KINDS {
            let name = format!("{kind:?}").to_lowercase();
            let deleted = delete_owner(&place, kind, &name, "Foreground").await?;
            let metadata = &deleted["metadata"];
            ensure!(metadata["finalizers"] == json!(["foregroundDeletion"]), "{deleted}");
            ensure!(metadata["deletionTimestamp"].is_string(), "{deleted}");
            place.wait_until_gone(kind, &name).await?;
            for dependent in KINDS {
                let answer = place.get(dependent, &format!("{name}-dependent")).await?;
                ensure!(answer.status == 404, "the owner went before {answer}");
            }
        }
        Ok(())
    });
}

#[test]
fn orphaning_deletion_leaves_dependents_without_owner() {
    run(async |_| {
        let place = TestNamespace::make("orphan").await?;
        for kind in KINDS {
            let name = format!("{kind:?}").to_lowercase();
            delete_owner(&place, kind, &name, "Orphan").await?;
            place.wait_until_gone(kind, &name).await?;
            for dependent in KINDS {
                let orphan = place.get(dependent, &format!("{name}-dependent")).await?.ok()?;
                let metadata = &orphan["metadata"];
                ensure!(metadata["ownerReferences"].is_null(), "{orphan}");
                ensure!(metadata["deletionTimestamp"].is_null(), "{orphan}");
            }
        }
        Ok(())
    });
}

#[test]
fn objects_of_an_absent_owner_are_collected_and_those_of_a_living_one_stay() {
    run(async |_| {
        let place = TestNamespace::make("absent").await?;
        for kind in KINDS {
            let name = format!("{kind:?}").to_lowercase();
            own(&place, kind, &name).await?;
            let mut stranger = place.get(kind, &name).await?.ok()?;
            stranger["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
            place.create(Kind::ShootState, &format!("{name}-child"), Some(&stranger)).await?;
            place.wait_until_gone(Kind::ShootState, &format!("{name}-child")).await?;
            for dependent in KINDS {
                place.get(dependent, &format!("{name}-dependent")).await?.ok()?;
            }
        }
        Ok(())
    });
}

#[test]
fn quota_counts_shoot_states() {
    run(async |_| {
        let place = TestNamespace::make("counted").await?;
        let key = format!("count/shootstates.{GROUP}");
        let hard = json!({key.clone(): "5", "count/configmaps": "5"});
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
        let quotas = format!("/api/v1/namespaces/{}/resourcequotas", place.namespace);
        place.create(Kind::ShootState, "s-0", None).await?;
        place.api.post(&quotas, &quota).await?.ok()?;
        until("the quota to be seen", DEADLINE, async || {
            let status = place.api.get(&format!("{quotas}/q")).await?.ok()?["status"].clone();
            ensure!(status["hard"][&key] == "5", "its status is {status}");
            Ok(())
        })
        .await?;
        // The controller counts what its informer has seen, which may not be `s-0` yet, and counts again only after a deletion.
        place.create(Kind::ShootState, "s-gone", None).await?;
        place.api.delete(&format!("{}/s-gone", place.collection(Kind::ShootState))).await?.ok()?;
        let used = async |count: &str| {
            until(&format!("the quota to count {count}"), DEADLINE, async || {
                let status = place.api.get(&format!("{quotas}/q")).await?.ok()?["status"].clone();
                // One ConfigMap, the certificate authorities, is in every namespace.
                let right = status["used"][&key] == count && status["used"]["count/configmaps"] == "1";
                ensure!(right, "it counts {}", status["used"]);
                Ok(())
            })
            .await
        };
        used("1").await?;
        for n in 1..3 {
            place.create(Kind::ShootState, &format!("s-{n}"), None).await?;
        }
        used("3").await?;
        place.api.delete(&format!("{}/s-1", place.collection(Kind::ShootState))).await?.ok()?;
        used("2").await
    });
}

#[test]
fn storage_version_migration_succeeds_and_changes_nothing() {
    run(async |_| {
        let place = TestNamespace::make("migrated").await?;
        let mut before = Vec::new();
        for n in 0..3 {
            before.push(place.create(Kind::ShootState, &format!("s-{n}"), None).await?);
        }
        let spec = json!({"resource": {"group": GROUP, "resource": "shootstates"}});
        let migration = json!({
            "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
            "metadata": {"name": "shootstates"}, "spec": spec,
        });
        let migrations = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
        place.api.post(migrations, &migration).await?.ok()?;
        until("the migration to succeed", DEADLINE, async || {
            let status = place.api.get(&format!("{migrations}/shootstates")).await?.ok()?["status"].clone();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            ensure!(conditions.iter().any(|c| c["type"] == "Succeeded" && c["status"] == "True"), "{status}");
            Ok(())
        })
        .await?;
        for object in before {
            let name = object["metadata"]["name"].as_str().context("a name")?;
            let after = place.get(Kind::ShootState, name).await?.ok()?;
            ensure!(after == object, "it was {object} and is {after}");
        }
        Ok(())
    });
}
