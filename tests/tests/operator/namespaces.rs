//! An operator with rights in one namespace only, and without a directory for Local stores.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::pods::{Images, PodRunner, PodRunnerOptions};
use repot_tests::repot::Repot;
use repot_tests::{Shared, TestEnv, namespace, operator, run, start_shared};
use serde_json::{Value, json};

use super::world::{
    IMAGE, SYSTEM, apply_file, crd_is_served, deploy, etcd, image, spec, start_operator,
    start_operator_with_directory,
};
use crate::etcd_kinds::world::{GROUP, VERSION, flags as storage_flags};
use crate::testbed::pods::world::IMMEDIATE;

const MINE: &str = "mine";
const USER: &str = "system:serviceaccount:repot-system:repot-controllers";

struct World {
    garden: Garden,
    _runner: PodRunner,
    /// All requests of the operator, as kube-apiserver saw them.
    audit: PathBuf,
    /// Where the logs of Pods are.
    logs: PathBuf,
    /// Where backups are.
    store: String,
    _repot: Repot,
}

static WORLD: Shared<World> = Shared::new(|env| start_shared(World::start(env)));

impl World {
    async fn start(env: &TestEnv) -> Result<Self> {
        let (policy, audit) = (env.path().join("audit-policy.yaml"), env.path().join("audit.log"));
        let rules = json!([{"level": "Metadata", "users": [USER]}, {"level": "None"}]);
        let text = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules,
        });
        fs::write(&policy, text.to_string())?;
        let flags = [("audit-policy-file", &policy), ("audit-log-path", &audit)];
        let apiserver_flags = flags.map(|(name, path)| format!("--{name}={}", path.display())).to_vec();
        let options = GardenOptions { controller_manager: true, apiserver_flags, ..GardenOptions::default() };
        let garden = Garden::start_with(env, options).await?;
        let store = operator::make_store(env)?.display().to_string();
        let flags = [storage_flags(env)?, vec!["--serve=seed".to_owned()]].concat();
        let repot = Repot::behind(env, &garden, &[(GROUP, VERSION)], flags).await?;
        let images = Images::default().with(IMAGE, image()?);
        let runner =
            PodRunner::start(env, &garden, PodRunnerOptions { images, ..Default::default() }).await?;
        garden.apply(&[PodRunner::storage_class(IMMEDIATE, "Immediate", "Delete")]).await?;
        for file in ["crds/etcds.yaml", "rbac/namespaced/account.yaml"] {
            apply_file(&garden, file).await?;
        }
        crd_is_served(&garden).await?;
        Ok(Self { garden, _runner: runner, audit, logs: env.path().join("pods"), store, _repot: repot })
    }

    /// What kube-apiserver answered the operator until now: namespace, what was asked for, and the code.
    fn requests(&self) -> Result<Vec<(String, String, u64)>> {
        let log = fs::read_to_string(&self.audit)?;
        let read = |line: &str| {
            let event: Value = serde_json::from_str(line)?;
            let namespace = event["objectRef"]["namespace"].as_str().unwrap_or_default().to_owned();
            let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            Ok((namespace, format!("{} {}", event["verb"], event["requestURI"]), code))
        };
        log.lines().map(read).collect()
    }

    /// What the operator has logged.
    fn log(&self) -> Result<String> {
        let pods = fs::read_dir(&self.logs)?.filter_map(Result::ok);
        let ours = pods.filter(|pod| pod.file_name().to_string_lossy().starts_with("repot-system."));
        let texts = ours.map(|pod| fs::read_to_string(pod.path().join("controllers/controllers.log")));
        Ok(texts.collect::<Result<_, _>>()?)
    }
}

#[test]
fn operator_with_roles_in_one_namespace_looks_after_the_etcds_there_and_asks_for_nothing_else() {
    run(async |_| {
        let world = WORLD.value()?;
        let mine = namespace::TestNamespace::make(&world.garden, MINE).await?;
        let theirs = namespace::TestNamespace::make(&world.garden, "theirs").await?;
        let roles = deploy("rbac/namespaced/roles.yaml").display().to_string();
        mine.kubectl(&["apply", "-f", &roles]).await?;
        theirs.apply(&[etcd("main", spec(1))]).await?;
        start_operator(&world.garden, &["--namespaces", MINE, "--leader-elect"]).await?;
        mine.apply(&[etcd("main", spec(1)), etcd("local", on_node())]).await?;

        let ready = |object: &Value| {
            object["status"]["readyReplicas"] == 1 && object["status"]["members"][0]["id"].is_string()
        };
        mine.until("etcd", "main", "ready", ready).await?;
        let refused = |object: &Value| {
            let said = object["status"]["lastErrors"][0]["description"].as_str();
            said.is_some_and(|text| text.contains("provider Local are disabled"))
        };
        mine.until("etcd", "local", "refused", refused).await?;
        take_backup(&world, &mine).await?;
        // Copies, and what is written when members go.
        mine.kubectl(&["scale", "etcd/main", "--replicas=0"]).await?;
        mine.until_gone("statefulset", "main").await?;
        let sets = mine.kubectl(&["get", "statefulset", "-o", "name"]).await?;
        ensure!(sets.is_empty(), "{sets}");

        let others = theirs.get("etcd", "main").await?;
        ensure!(others.get("status").is_none(), "{others}");
        let requests = world.requests()?;
        let refused: Vec<_> = requests.iter().filter(|(.., code)| *code == 403).collect();
        ensure!(refused.is_empty(), "{refused:?}");
        let asked: BTreeSet<_> = requests.iter().map(|(namespace, ..)| namespace.as_str()).collect();
        let everywhere: Vec<_> = requests.iter().filter(|(namespace, ..)| namespace.is_empty()).collect();
        ensure!(everywhere.iter().all(|(_, asked, _)| asked.contains("/version")), "{everywhere:?}");
        ensure!(asked.iter().all(|namespace| ["", MINE, SYSTEM].contains(namespace)), "{asked:?}");
        let log = world.log()?;
        ensure!(log.contains("controllers are up"), "no log of the operator: {log}");
        ensure!(!log.to_lowercase().contains("forbidden"), "{log}");
        Ok(())
    });
}

/// A workflow of the namespace, by controllers that may use a directory for it.
async fn take_backup(world: &World, mine: &namespace::TestNamespace) -> Result<()> {
    let flags = ["--namespaces", MINE, "--leader-elect", "--local-store-path", &world.store];
    start_operator_with_directory(&world.garden, &flags, &world.store).await?;
    let object = |kind: &str, name: &str, spec: Value| {
        let version = format!("{GROUP}/{VERSION}");
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
    };
    let store = json!({"provider": "Local", "container": world.store, "prefix": "mine/main"});
    let hosted = json!({
        "etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}, "backupStore": store,
    });
    let backup = json!({"clusterRef": {"name": "main"}});
    mine.apply(&[object("HostedEtcd", "main", hosted), object("EtcdBackup", "b", backup)]).await?;
    let succeeded = |object: &Value| object["status"]["phase"] == "Succeeded";
    let ended = mine.until("etcdbackup", "b", "succeeded", succeeded).await?;
    ensure!(ended["status"]["backupName"] == "b", "{}", ended["status"]);
    mine.until("hostedetcd", "main", "free", |hosted| hosted["status"]["currentWorkflow"].is_null()).await?;
    Ok(())
}

/// An Etcd with a store in a directory of its node.
fn on_node() -> Value {
    let mut spec = spec(1);
    spec["backup"]["store"] = json!({"provider": "Local", "container": "/var/backups", "prefix": "a"});
    spec
}

/// The rules of both forms are the same.
#[test]
fn roles_of_a_namespace_are_those_of_the_cluster() {
    run(async |_| {
        let world = WORLD.value()?;
        let rules = async |file: &str, kind: &str| -> Result<Vec<(Value, Value)>> {
            let path = deploy(file).display().to_string();
            let args = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", &path];
            let text = world.garden.kubectl(args).await?.text()?;
            let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            let objects = objects.collect::<Result<Vec<_>, _>>().context(text.clone())?;
            let items = |object: Value| match object["items"].as_array() {
                Some(items) => items.clone(),
                None => vec![object],
            };
            let all = objects.into_iter().flat_map(items).filter(|object| object["kind"] == kind);
            Ok(all.map(|object| (object["metadata"]["name"].clone(), object["rules"].clone())).collect())
        };
        let whole = rules("rbac/controllers.yaml", "ClusterRole").await?;
        ensure!(whole.len() == 2, "{whole:?}");
        ensure!(rules("rbac/namespaced/roles.yaml", "Role").await? == whole, "the rules differ");
        let lease = rules("rbac/controllers.yaml", "Role").await?;
        ensure!(lease.len() == 1, "{lease:?}");
        ensure!(rules("rbac/namespaced/account.yaml", "Role").await? == lease, "the rules differ");
        Ok(())
    });
}
