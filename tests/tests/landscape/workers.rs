//! Machines that move from one seed to the other by the local provider, under the real machine-controller-manager.

use anyhow::{Context, Result, ensure};
use repot_tests::landscape::cloud::Counters;
use repot_tests::landscape::machines::{MANAGER, USER_DATA};
use repot_tests::landscape::{
    ControlPlaneOptions, DEADLINE, Landscape, LandscapeOptions, Seed, Shoot, ShootName, carry, control_plane,
};
use repot_tests::run_large;
use repot_tests::wait::until;
use serde_json::{Map, Value, json};

use super::items;
use super::world::{ExtensionResource, make_namespace};

const MACHINE_KINDS: [&str; 4] = ["machinedeployments", "machinesets", "machines", "machineclasses"];
const NAME: &str = "gamma";

#[test]
#[ignore = "minutes, in make soak"]
fn machines_keep_their_vms_when_their_worker_moves() {
    run_large(async |env| {
        let options = LandscapeOptions { garden: false, ..LandscapeOptions::default() };
        let landscape = Landscape::start(env, options).await?;
        let options = ControlPlaneOptions {
            etcd_members: 1,
            api_servers: 1,
            pools: vec![("worker-a".to_owned(), 2), ("worker-b".to_owned(), 1)],
            ..ControlPlaneOptions::default()
        };
        let shoot = landscape.create_shoot(env, ShootName::new("dev", NAME), "seed-a", options).await?;
        let cloud = landscape.cloud.client();
        let (vms, counters) = (cloud.vms().await?, cloud.counters().await?);
        ensure!(vms.len() == 3 && counters == Counters { created: 3, deleted: 0 }, "{counters:?} {vms:?}");

        let world = Move::of(&landscape, &shoot)?;
        let state = world.machine_state().await?;
        world.leave().await?;
        world.arrive(&state).await?;
        world.start_manager().await?;
        let (after, counters) = (cloud.vms().await?, cloud.counters().await?);
        ensure!(after == vms && counters == Counters { created: 3, deleted: 0 }, "{counters:?} {after:?}");
        world.manager_replaces_a_deleted_machine(&landscape).await
    });
}

/// The move of the machines of one Shoot.
struct Move<'a> {
    shoot: &'a Shoot,
    source: &'a Seed,
    destination: &'a Seed,
    namespace: String,
}

impl<'a> Move<'a> {
    fn of(landscape: &'a Landscape, shoot: &'a Shoot) -> Result<Self> {
        let namespace = shoot.control_plane.shoot.technical_id();
        let (source, destination) = (landscape.seed("seed-a")?, landscape.seed("seed-b")?);
        Ok(Self { shoot, source, destination, namespace })
    }

    async fn list(&self, seed: &Seed, plural: &str) -> Result<Vec<Value>> {
        let path = format!("/apis/machine.sapcloud.io/v1alpha1/namespaces/{}/{plural}", self.namespace);
        Ok(items(&seed.cluster.api().get(&path).await?.ok()?).cloned().collect())
    }

    /// The state of the Worker, as a ShootState has it. Owners are told by names, because MachineDeployments are no prefixes of
    /// each other here.
    async fn machine_state(&self) -> Result<Value> {
        let mut deployments = Map::new();
        let (sets, machines) =
            (self.list(self.source, "machinesets").await?, self.list(self.source, "machines").await?);
        for deployment in self.list(self.source, "machinedeployments").await? {
            let name = deployment["metadata"]["name"].as_str().context("it has no name")?;
            let of = |all: &[Value]| -> Vec<Value> {
                all.iter().filter(|one| one["metadata"]["labels"]["name"] == name).cloned().collect()
            };
            let state = json!({
                "replicas": deployment["spec"]["replicas"], "machineSets": of(&sets), "machines": of(&machines),
            });
            deployments.insert(name.to_owned(), state);
        }
        ensure!(deployments.len() == 2 && machines.len() == 3, "{deployments:?}");
        Ok(json!({"machineDeployments": deployments}))
    }

    /// Machine objects leave the source, once machine-controller-manager is stopped there.
    async fn leave(&self) -> Result<()> {
        let worker = ExtensionResource::of(self.source, &self.namespace, "Worker", NAME);
        worker.request("migrate").await?;
        let refused = worker.until("Migrate", "Error").await?;
        let description = refused["status"]["lastError"]["description"].as_str().unwrap_or_default();
        ensure!(description.contains(MANAGER), "{}", refused["status"]);
        ensure!(self.list(self.source, "machines").await?.len() == 3, "Machines are gone too early");
        self.scale(self.source, 0).await?;
        worker.until("Migrate", "Succeeded").await?;
        for kind in MACHINE_KINDS {
            let left = self.list(self.source, kind).await?;
            ensure!(left.is_empty(), "{kind}: {left:?}");
        }
        let path = format!("/api/v1/namespaces/{}/secrets/{USER_DATA}", self.namespace);
        let secret = self.source.cluster.api().get(&path).await?.ok()?;
        ensure!(secret["metadata"]["finalizers"].is_null(), "{}", secret["metadata"]);
        Ok(())
    }

    /// Machine objects come to the destination, with machine-controller-manager at 0.
    async fn arrive(&self, state: &Value) -> Result<()> {
        make_namespace(self.destination, &self.namespace).await?;
        self.carry_manager().await?;
        let old = ExtensionResource::of(self.source, &self.namespace, "Worker", NAME).get().await?;
        let waits = json!({"gardener.cloud/operation": "wait-for-state"});
        let (kind, spec) = (("Worker", NAME), old["spec"].clone());
        let new = ExtensionResource::create(self.destination, &self.namespace, kind, spec, waits).await?;
        new.set_state(state).await?;
        new.request("restore").await?;
        let restored = new.until("Restore", "Succeeded").await?;
        ensure!(restored["status"]["state"].is_null(), "the state is left: {}", restored["status"]["state"]);
        let ranges = &restored["status"]["machineDeployments"];
        ensure!(ranges.as_array().is_some_and(|ranges| ranges.len() == 2), "{ranges}");
        let machines = self.list(self.destination, "machines").await?;
        let carried = state["machineDeployments"].as_object().into_iter().flatten();
        let carried = carried.flat_map(|(_, one)| one["machines"].as_array().into_iter().flatten());
        let identity = |machine: &Value| {
            let (metadata, id) = (&machine["metadata"], &machine["spec"]["providerID"]);
            format!("{} {} {}", metadata["name"], metadata["labels"]["node"], id)
        };
        let (mut was, mut is): (Vec<_>, Vec<_>) =
            (carried.map(identity).collect(), machines.iter().map(identity).collect());
        was.sort_unstable();
        is.sort_unstable();
        ensure!(was == is && is.len() == 3, "before {was:?}, after {is:?}");
        Ok(())
    }

    /// The Deployment of machine-controller-manager and what it needs, as objects that declare to be carried: with the name of the
    /// destination where a binding says so, and with the way to the kube-apiserver that is still at the source.
    async fn carry_manager(&self) -> Result<()> {
        let core = format!("/api/v1/namespaces/{}", self.namespace);
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", self.namespace);
        let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", self.namespace);
        let mut objects = Vec::new();
        for (path, name) in [
            (format!("{core}/secrets"), MANAGER),
            (format!("{core}/secrets"), USER_DATA),
            (format!("{core}/serviceaccounts"), MANAGER),
            (format!("{rbac}/roles"), MANAGER),
            (format!("{rbac}/rolebindings"), MANAGER),
            (deployments, MANAGER),
        ] {
            let found = self.source.cluster.api().get(&format!("{path}/{name}")).await?.ok()?;
            let metadata = &found["metadata"];
            ensure!(metadata["labels"][carry::CARRY] == "true", "{path}/{name} is not carried");
            let mut object = found.clone();
            object["metadata"] = json!({"namespace": self.namespace, "name": name});
            object.as_object_mut().map(|object| object.remove("status"));
            if let Some(bindings) = metadata["annotations"][carry::BINDINGS].as_str() {
                self.resolve(&mut object, bindings)?;
            }
            objects.push(object);
        }
        objects[0]["data"] = Value::Null;
        objects[0]["stringData"] = json!({"kubeconfig": self.kubeconfig().await?});
        objects[5]["spec"]["replicas"] = 0.into();
        self.destination.cluster.apply(&objects).await
    }

    fn resolve(&self, object: &mut Value, bindings: &str) -> Result<()> {
        let bindings: Map<String, Value> = serde_json::from_str(bindings)?;
        ensure!(!bindings.is_empty(), "there are no bindings");
        for (pointer, template) in bindings {
            let value = object.pointer_mut(&pointer).with_context(|| format!("{pointer} matches nothing"))?;
            ensure!(value.as_str() == Some("--by=seed-a"), "{pointer} is {value}");
            let template = template.as_str().context("a template is no text")?;
            *value = template.replace("${seed.name}", &self.destination.name).into();
        }
        Ok(())
    }

    async fn kubeconfig(&self) -> Result<String> {
        let host = format!("kube-apiserver.{}.svc", self.namespace);
        let port = self.source.runner.publish(&host, control_plane::API_PORT).await?;
        let server = format!("https://{}", self.destination.runner.expose(port)?);
        let authorities = &self.shoot.control_plane.authorities;
        let access = authorities.access(&server, "gardener.cloud:manager", &["system:masters"])?;
        let mut kubeconfig: Value = serde_json::from_str(&access.to_kubeconfig())?;
        kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = host.into();
        Ok(kubeconfig.to_string())
    }

    async fn scale(&self, seed: &Seed, replicas: u32) -> Result<()> {
        let (name, count) = (format!("deployment/{MANAGER}"), format!("--replicas={replicas}"));
        seed.cluster.kubectl(["scale", &name, &count, "-n", &self.namespace]).await?.text().map(drop)
    }

    /// machine-controller-manager adopts what was restored: it owns all Machines and says of all that they run.
    async fn start_manager(&self) -> Result<()> {
        self.scale(self.destination, 1).await?;
        until("all Machines to be adopted and to run", DEADLINE, async || {
            for machine in self.list(self.destination, "machines").await? {
                let (owners, phase) =
                    (&machine["metadata"]["ownerReferences"], &machine["status"]["currentStatus"]["phase"]);
                ensure!(owners[0]["kind"] == "MachineSet" && phase == "Running", "{machine}");
            }
            for deployment in self.list(self.destination, "machinedeployments").await? {
                let (spec, status) = (&deployment["spec"], &deployment["status"]);
                ensure!(status["availableReplicas"] == spec["replicas"], "{status}");
                ensure!(status["updatedReplicas"] == spec["replicas"], "{status}");
            }
            Ok(())
        })
        .await
    }

    async fn manager_replaces_a_deleted_machine(&self, landscape: &Landscape) -> Result<()> {
        let cloud = landscape.cloud.client();
        let victim = cloud.vms().await?.remove(0).name;
        let delete = ["delete", "machine", &victim, "-n", &self.namespace, "--wait=false"];
        self.destination.cluster.kubectl(delete).await?.text()?;
        until("the machine to be replaced", DEADLINE, async || {
            let counters = cloud.counters().await?;
            ensure!(counters == Counters { created: 4, deleted: 1 }, "{counters:?}");
            Ok(())
        })
        .await
    }
}
