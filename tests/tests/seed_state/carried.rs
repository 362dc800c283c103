//! Carried objects: what is applied from a ShootState in another namespace gives the same ShootState again.

use anyhow::{Context as _, Result, ensure};
use repot_controllers::shootstate::{Mode, collect, sync};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{World, infrastructure};

fn carried(api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": name, "labels": {"migration.gardener.cloud/carry": "true"},
            "annotations": {"keep": "me", "gardener.cloud/operation": "reconcile"},
        },
    });
    for (member, value) in rest.as_object().into_iter().flatten() {
        object[member] = value.clone();
    }
    object
}

fn workload() -> Value {
    json!({
        "replicas": 1, "selector": {"matchLabels": {"app": "x"}},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "registry.example.com/c:1"}]},
        },
    })
}

fn objects() -> Vec<Value> {
    let mut set = workload();
    set["serviceName"] = "x".into();
    let port = json!([{"port": 443, "name": "https"}]);
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiGroup": rbac, "kind": "Role", "name": "r"});
    vec![
        carried("apps/v1", "Deployment", "d", &json!({"spec": workload()})),
        carried("apps/v1", "StatefulSet", "s", &json!({"spec": set})),
        carried(
            "v1",
            "Service",
            "lb",
            &json!({"spec": {"type": "NodePort", "ports": port, "selector": {"app": "x"}}}),
        ),
        carried("v1", "Service", "headless", &json!({"spec": {"clusterIP": "None", "ports": port}})),
        carried("v1", "ConfigMap", "c", &json!({"data": {"k": "1.0"}})),
        carried("v1", "Secret", "s", &json!({"data": {"k": "AA=="}, "type": "x/y", "immutable": true})),
        carried("v1", "ServiceAccount", "a", &json!({})),
        carried(&format!("{rbac}/v1"), "Role", "r", &json!({"rules": []})),
        carried(&format!("{rbac}/v1"), "RoleBinding", "b", &json!({"roleRef": role, "subjects": []})),
        carried("networking.k8s.io/v1", "NetworkPolicy", "n", &json!({"spec": {"podSelector": {}}})),
        carried("policy/v1", "PodDisruptionBudget", "p", &json!({"spec": {"minAvailable": 1}})),
    ]
}

#[test]
fn carried_objects_come_back() {
    run(async |_| {
        let world = World::make("carried").await?;
        let mut all = objects();
        let extension = infrastructure("i", &json!({"migration.gardener.cloud/carry": "true"}));
        all.push(extension);
        let mut persistent = carried("v1", "Secret", "ca", &json!({}));
        persistent["metadata"]["labels"]["persist"] = "true".into();
        let plain = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stays"}});
        world.apply(&all).await?;
        world.apply(&[persistent, plain]).await?;
        sync(&world.garden, &world.seed, &world.shoot, Mode::Overwrite).await?;
        let state = world.state().await?;
        let kinds: Vec<_> =
            state.resources.iter().map(|entry| (entry.kind.as_str(), entry.name.as_str())).collect();
        ensure!(kinds.len() == all.len(), "{kinds:?}");
        ensure!(state.secrets.len() == 1, "{state:?}");

        // The destination is another namespace, in which addresses and uids are others.
        let namespace = "destination-carried";
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let mut restored = vec![made];
        for entry in &state.resources {
            let mut object: Value = entry.data.decode()?;
            let metadata = object["metadata"].as_object().context("metadata")?;
            let kept = metadata.keys().all(|key| ["name", "labels", "annotations"].contains(&key.as_str()));
            ensure!(
                kept && metadata.get("annotations").is_none_or(|a| *a == json!({"keep": "me"})),
                "{metadata:?}"
            );
            object["metadata"]["namespace"] = namespace.into();
            restored.push(object);
        }
        world.apply_raw(&restored).await?;
        let again = collect(&world.seed, namespace).await?;
        ensure!(again.resources == state.resources, "{:?}", differing(&again.resources, &state.resources)?);
        Ok(())
    });
}

type Entries = [repot_controllers::shootstate::model::ResourceEntry];

fn differing(one: &Entries, other: &Entries) -> Result<Vec<String>> {
    let pairs = one.iter().zip(other).filter(|(one, other)| one != other);
    Ok(pairs.map(|(one, other)| format!("{} / {}", one.data.get(), other.data.get())).collect())
}
