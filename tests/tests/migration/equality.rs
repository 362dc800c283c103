//! After a migration everything is as it was: Secrets and Machines of the seed, objects of the Shoot, tokens of its service accounts; and
//! nothing of the Shoot is left at the source.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use repot_tests::http::Api;
use repot_tests::landscape::DEADLINE;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::story;
use super::world::{SEEDS, World, run, small};

/// Secrets that are added: a ShootState of more than 12 MiB, where etcd ends at 1.5 and a request to kube-apiserver at 3.
const LARGE_SECRETS: usize = 11;
/// Bytes of each, near the most that a Secret may have.
const LARGE: usize = 900 << 10;

/// Lists of objects of the Shoot that nobody but this test writes.
const OF_SHOOT: [&str; 8] = [
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
];
const MACHINES: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces";

#[test]
#[ignore = "minutes, in make soak"]
fn everything_is_as_it_was_after_the_move_of_a_state_of_twelve_mebibytes() {
    run(async |env| {
        let world = World::create(env, "equal", small()).await?;
        add_large_secrets(&world).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "made-before"}, "data": {"key": "c2VjcmV0"}});
        world.api()?.post("/api/v1/namespaces/default/secrets", &secret).await?.ok()?;
        let token = token(&world.api()?).await?;
        let (secrets, machines) = (secrets(&world, SEEDS.0).await?, machines(&world, SEEDS.0).await?);
        let (objects, version) = objects(&world.api()?).await?;
        let workload = world.workload().await?;
        let keys = keys(&world, SEEDS.0).await?;
        story::succeed(&world, "move", SEEDS).await?;
        let state = serde_json::to_vec(&story::state(&world).await?)?.len();
        println!("the ShootState has {} KiB", state >> 10);
        ensure!(state > 12 << 20, "the ShootState has {state} bytes");
        world.ensure_moved(&workload, SEEDS).await?;
        ensure_keys_are_new(&world, &keys).await?;
        ensure_same("Secrets of the seed", &secrets, &self::secrets(&world, SEEDS.1).await?)?;
        ensure_same("Machines", &machines, &self::machines(&world, SEEDS.1).await?)?;
        let (after, later) = self::objects(&world.api()?).await?;
        ensure_same("objects of the Shoot", &objects, &after)?;
        ensure!(later >= version, "the resourceVersion went from {version} to {later}");
        ensure_token_counts(&world.api()?, &token).await?;
        ensure_nothing_cluster_scoped(&world, SEEDS.0).await?;
        world.stop(SEEDS.1).await
    });
}

/// Secrets that a move has to carry, which do not compress.
async fn add_large_secrets(world: &World) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/secrets", world.name().technical_id());
    let api = world.landscape.seed(SEEDS.0)?.cluster.api();
    for at in 0..LARGE_SECRETS {
        let mut bytes = vec![0; LARGE];
        aws_lc_rs::rand::fill(&mut bytes)?;
        let labels =
            json!({"name": format!("large-{at}"), "persist": "true", "managed-by": "secrets-manager"});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "example.com/large", "immutable": true,
            "metadata": {"name": format!("large-{at}"), "labels": labels},
            "data": {"value": BASE64_STANDARD.encode(&bytes)},
        });
        api.post(&path, &secret).await?.ok()?;
    }
    Ok(())
}

/// Objects by what identifies them.
type Objects = BTreeMap<String, Value>;

fn items(list: &Value) -> Result<impl Iterator<Item = &Value>> {
    Ok(list["items"].as_array().context("this is no list")?.iter())
}

/// Secrets of the control plane that a move carries: data, type, whether they are immutable, and labels.
async fn secrets(world: &World, seed: &str) -> Result<Objects> {
    let selector = "labelSelector=persist%3Dtrue";
    let path = format!("/api/v1/namespaces/{}/secrets?{selector}", world.name().technical_id());
    let list = world.landscape.seed(seed)?.cluster.api().get(&path).await?.ok()?;
    let all: Objects = items(&list)?
        .map(|one| {
            let (data, labels) = (&one["data"], &one["metadata"]["labels"]);
            let content =
                json!({"data": data, "type": one["type"], "immutable": one["immutable"], "labels": labels});
            (one["metadata"]["name"].to_string(), content)
        })
        .collect();
    ensure!(all.len() > LARGE_SECRETS, "{seed} has {:?}", all.keys());
    Ok(all)
}

/// Names, labels and provider IDs of Machines and of what makes them.
async fn machines(world: &World, seed: &str) -> Result<Objects> {
    let mut all = Objects::new();
    for kind in ["machines", "machinesets", "machinedeployments"] {
        let path = format!("{MACHINES}/{}/{kind}", world.name().technical_id());
        let list = world.landscape.seed(seed)?.cluster.api().get(&path).await?.ok()?;
        for one in items(&list)? {
            let content =
                json!({"labels": one["metadata"]["labels"], "providerID": one["spec"]["providerID"]});
            all.insert(format!("{kind}/{}", one["metadata"]["name"]), content);
        }
        ensure!(all.keys().any(|name| name.starts_with(kind)), "there are no {kind}");
    }
    Ok(all)
}

/// Objects of the Shoot with all that they hold, and the version of their lists.
async fn objects(api: &Api) -> Result<(Objects, u64)> {
    let (mut all, mut version) = (Objects::new(), 0);
    for path in OF_SHOOT {
        let list = api.get(path).await?.ok()?;
        version = version.max(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?);
        for one in items(&list)? {
            let metadata = &one["metadata"];
            let name = format!("{path} {} {} {}", metadata["namespace"], metadata["name"], metadata["uid"]);
            all.insert(name, one.clone());
        }
    }
    Ok((all, version))
}

fn ensure_same(what: &str, before: &Objects, after: &Objects) -> Result<()> {
    let missing: Vec<_> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    ensure!(missing.is_empty(), "{what} are missing: {missing:?}");
    let changed: Vec<_> =
        before.iter().filter(|(name, one)| after[*name] != **one).map(|(name, _)| name).collect();
    ensure!(changed.is_empty(), "{what} have changed: {changed:?}");
    let new: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    ensure!(new.is_empty(), "{what} are new: {new:?}");
    println!("{} {what} are the same", before.len());
    Ok(())
}

/// A token of a service account, issued before the move.
async fn token(api: &Api) -> Result<String> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    // kube-controller-manager makes the ServiceAccount.
    let answer = until("the default ServiceAccount", DEADLINE, async || api.post(path, &request).await?.ok());
    answer.await?["status"]["token"].as_str().map(str::to_owned).context("there is no token")
}

async fn ensure_token_counts(api: &Api, token: &str) -> Result<()> {
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let answer = api.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?.ok()?;
    ensure!(answer["status"]["authenticated"] == true, "{}", answer["status"]);
    Ok(())
}

/// Private keys of servers and clients, by Secret and key: they are issued anew at each seed.
async fn keys(world: &World, seed: &str) -> Result<BTreeMap<String, String>> {
    let path = format!("/api/v1/namespaces/{}/secrets", world.name().technical_id());
    let list = world.landscape.seed(seed)?.cluster.api().get(&path).await?.ok()?;
    let mut all = BTreeMap::new();
    for one in items(&list)? {
        for (key, value) in one["data"].as_object().into_iter().flatten() {
            if ["tls.key", "front-proxy.key", "etcd.key"].contains(&key.as_str()) {
                let value = value.as_str().unwrap_or_default().to_owned();
                all.insert(format!("{}/{key}", one["metadata"]["name"]), value);
            }
        }
    }
    ensure!(all.len() >= 8, "there are {:?}", all.keys());
    Ok(all)
}

async fn ensure_keys_are_new(world: &World, before: &BTreeMap<String, String>) -> Result<()> {
    let (after, state) = (keys(world, SEEDS.1).await?, story::state(world).await?.to_string());
    ensure!(before.keys().eq(after.keys()), "before {:?}, after {:?}", before.keys(), after.keys());
    let same: Vec<_> =
        before.iter().filter(|(name, key)| after[*name] == **key).map(|(name, _)| name).collect();
    ensure!(same.is_empty(), "keys that were not issued anew: {same:?}");
    let carried: Vec<_> =
        before.iter().filter(|(_, key)| state.contains(*key)).map(|(name, _)| name).collect();
    ensure!(carried.is_empty(), "keys in the ShootState: {carried:?}");
    println!("{} private keys are new, and were not carried", before.len());
    Ok(())
}

/// Fails when a cluster-scoped object of a seed names the Shoot.
async fn ensure_nothing_cluster_scoped(world: &World, seed: &str) -> Result<()> {
    let (cluster, id) = (&world.landscape.seed(seed)?.cluster, world.name().technical_id());
    let kinds = ["api-resources", "--namespaced=false", "--verbs=list", "-o", "name"];
    let kinds = cluster.kubectl(kinds).await?.text()?;
    ensure!(kinds.lines().count() > 10, "the seed serves {kinds}");
    let kinds = kinds.lines().collect::<Vec<_>>().join(",");
    let all = cluster.kubectl(["get", &kinds, "-o", "json"]).await?.text()?;
    let all: Value = serde_json::from_str(&all)?;
    let left: Vec<_> = items(&all)?
        .filter(|one| one.to_string().contains(&id))
        .map(|one| format!("{} {}", one["kind"], one["metadata"]["name"]))
        .collect();
    ensure!(left.is_empty(), "left at {seed}: {left:?}");
    Ok(())
}
