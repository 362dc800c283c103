//! The etcd of a Shoot grows from its seed to another one and leaves the first, by fields of the Etcds of both seeds. Members reach each
//! other through a load balancer for each of them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::dns::ZONE;
use repot_tests::landscape::dns_message::Values;
use repot_tests::landscape::etcd::MAIN;
use repot_tests::landscape::seed::{BACKUP_SECRET, Seed};
use repot_tests::landscape::{ControlPlaneOptions, DEADLINE};
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::migration::owner;
use crate::migration::world::{SEEDS, World, run, small};
use crate::migration::writer::{self, Writer};

const MEMBERS: u32 = 3;
/// How long members of the landscape serve without an answer that counts: interval and timeout of the owner check.
const LEASE: Duration = Duration::from_secs(6);
/// From one look at an Etcd to the next.
const PAUSE: Duration = Duration::from_millis(500);
const PEER: u16 = 2380;
const CLIENT: u16 = 2379;
const MERGE: &str = "application/merge-patch+json";
/// What members at the destination need, and find at the source.
const SECRETS: [&str; 5] =
    ["etcd-ca", "etcd-peer-ca", "etcd-client", "etcd-main-server", "etcd-main-peer-server"];

/// The members of the etcd in one seed.
struct EtcdOfSeed<'a> {
    world: &'a World,
    seed: &'a Seed,
    /// What the names of its members begin with.
    prefix: &'a str,
}

impl<'a> EtcdOfSeed<'a> {
    fn new(world: &'a World, seed: &str, prefix: &'a str) -> Result<Self> {
        Ok(Self { world, seed: world.landscape.seed(seed)?, prefix })
    }

    fn namespace(&self) -> String {
        self.world.name().technical_id()
    }

    fn path(&self) -> String {
        format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{}/etcds/{MAIN}", self.namespace())
    }

    fn host(&self, at: u32) -> String {
        format!("{MAIN}-{at}.{}.{}.{ZONE}", self.namespace(), self.seed.name)
    }

    fn url(&self, at: u32, port: u16) -> String {
        format!("https://{}:{port}", self.host(at))
    }

    fn member(&self, at: u32) -> String {
        format!("{}{MAIN}-{at}", self.prefix)
    }

    /// Peer URLs of the members, as `additionalAdvertisePeerURLs` has them.
    fn peers(&self) -> Value {
        let peer = |at| json!({"memberName": self.member(at), "urls": [self.url(at, PEER)]});
        (0..MEMBERS).map(peer).collect()
    }

    /// The members and where clients reach them, as `bootstrapWithExistingCluster` has them.
    fn existing(&self) -> Value {
        let member = |at| json!({"name": self.member(at), "peerUrls": [self.url(at, PEER)]});
        let members: Vec<Value> = (0..MEMBERS).map(member).collect();
        let clients: Vec<String> = (0..MEMBERS).map(|at| self.url(at, CLIENT)).collect();
        json!({"members": members, "clientEndpoints": clients})
    }

    /// Gives each member a load balancer and a name in DNS.
    async fn expose(&self) -> Result<()> {
        for at in 0..MEMBERS {
            let name = format!("{MAIN}-{at}-exposed");
            let ports = [("peer", PEER), ("client", CLIENT)]
                .map(|(name, port)| json!({"name": name, "port": port, "targetPort": port}));
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": self.namespace(), "name": name},
                "spec": {
                    "type": "LoadBalancer", "ports": ports, "publishNotReadyAddresses": true,
                    "selector": {"statefulset.kubernetes.io/pod-name": format!("{MAIN}-{at}")},
                },
            });
            self.seed.cluster.apply(&[service]).await?;
            let address = self.address(&name).await?;
            self.world.landscape.dns.set(&self.host(at), 5, &Values::A(vec![address])).await?;
        }
        Ok(())
    }

    async fn address(&self, service: &str) -> Result<Ipv4Addr> {
        let path = format!("/api/v1/namespaces/{}/services/{service}", self.namespace());
        until("the address of a member", DEADLINE, async || {
            let service = self.seed.cluster.api().get(&path).await?.ok()?;
            let ip = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
            Ok(ip.context("there is no address yet")?.parse()?)
        })
        .await
    }

    async fn etcd(&self) -> Result<Value> {
        self.seed.cluster.api().get(&self.path()).await?.ok()
    }

    async fn patch(&self, patch: &Value) -> Result<()> {
        self.seed.cluster.api().patch(&self.path(), MERGE, patch).await?.ok().map(drop)
    }

    /// Waits until the status of the Etcd is as wanted, and gives the Etcd.
    async fn until(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        until(&format!("{what} at {}", self.seed.name), 3 * DEADLINE, async || {
            let etcd = self.etcd().await?;
            ensure!(is_wanted(&etcd["status"]), "{}", etcd["status"]);
            Ok(etcd)
        })
        .await
    }

    /// Lets the owner record name this seed alone. For several times as long as members serve without an answer that counts, they stay as
    /// they were.
    async fn become_owner(&self, id: &str, is_as_before: impl Fn(&Value) -> bool) -> Result<()> {
        let record = self.world.name().owner_domain();
        self.world.landscape.dns.set(&record, 5, &Values::Txt(vec![id.to_owned()])).await?;
        owner::ensure_says(self.world, &self.seed.name, ("check", &[]), (0, &["is this Etcd"])).await?;
        let begun = Instant::now();
        while begun.elapsed() < 4 * LEASE {
            let etcd = self.etcd().await?;
            ensure!(is_as_before(&etcd["status"]), "after {:?}: {}", begun.elapsed(), etcd["status"]);
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Creates what the members need, and the Etcd that joins the one of the other seed.
    async fn join(&self, other: &EtcdOfSeed<'_>, (own_id, joined_id): (&str, &str)) -> Result<()> {
        let namespace = self.namespace();
        let mut objects =
            vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
        for name in SECRETS {
            let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
            let secret = other.seed.cluster.api().get(&path).await?.ok()?;
            objects.push(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name},
                "data": secret["data"],
            }));
        }
        let mut backup = self.seed.backup_secret(BACKUP_SECRET);
        backup["metadata"]["namespace"] = namespace.as_str().into();
        objects.push(backup);
        self.seed.cluster.apply(&objects).await?;
        self.expose().await?;
        let mut spec = other.etcd().await?["spec"].take();
        spec["memberNamePrefix"] = self.prefix.trim_end_matches('-').into();
        spec["etcd"]["additionalAdvertisePeerURLs"] = self.peers();
        spec["etcd"]["bootstrapWithExistingCluster"] = other.existing();
        spec["backup"]["ownerCheck"]["id"] = own_id.into();
        spec["backup"]["ownerCheck"]["joinedID"] = joined_id.into();
        let etcd = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd",
            "metadata": {"namespace": namespace, "name": MAIN}, "spec": spec,
        });
        self.seed.cluster.apply(&[etcd]).await
    }
}

fn holds(status: &Value, kind: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == "True")
}

/// Clients write all the time through the kube-apiserver of the source, until the members of the source leave.
#[test]
#[ignore = "minutes, in make soak"]
fn etcd_grows_to_another_seed_through_load_balancers_and_leaves_the_first() {
    run(async |env| {
        let options = ControlPlaneOptions { etcd_members: MEMBERS, ..small() };
        let world = World::create(env, "six", options).await?;
        let (source, destination) =
            (EtcdOfSeed::new(&world, SEEDS.0, "")?, EtcdOfSeed::new(&world, SEEDS.1, "seed-b-")?);
        let writer = Writer::start(world.api()?);
        source.expose().await?;
        let moved = json!({
            "additionalAdvertisePeerURLs": source.peers(), "advertiseOnlyAdditionalPeerURLs": true,
            "peerUrlTls": {"skipClientSANVerification": true},
        });
        source.patch(&json!({"spec": {"etcd": moved}})).await?;
        let is_updated =
            |status: &Value| holds(status, "AllMembersUpdated") && holds(status, "AllMembersReady");
        let generation = source.etcd().await?["metadata"]["generation"].clone();
        let is_seen = |status: &Value| status["observedGeneration"] == generation && is_updated(status);
        source.until("members with other URLs", is_seen).await?;

        let owners = ("seed-b/2", "seed-a/1");
        destination.join(&source, owners).await?;
        let joined = |status: &Value| holds(status, "BootstrappedWithExistingCluster");
        destination.until("members that have joined", joined).await?;
        let acknowledged = writer.acknowledged();
        drop(writer);
        let stored = writer::stored(&world.api()?).await?;
        let lost: Vec<_> = acknowledged.difference(&stored).collect();
        ensure!(
            acknowledged.len() > 100 && lost.is_empty(),
            "{} were acknowledged, lost: {lost:?}",
            acknowledged.len()
        );

        destination.patch(&json!({"spec": {"etcd": {"bootstrapWithExistingCluster": null}}})).await?;
        let is_alone = |status: &Value| {
            status["bootstrapWithExistingCluster"]["released"] == true && status["readyReplicas"] == MEMBERS
        };
        destination.until("members without those of the source", is_alone).await?;
        let has_none_ready = |status: &Value| status["readyReplicas"].as_u64().unwrap_or_default() == 0;
        source.until("no member that is ready", has_none_ready).await?;
        destination.become_owner(owners.0, is_alone).await?;
        world.landscape.stop_shoot(world.name(), SEEDS.0).await?;
        world.stop(SEEDS.1).await
    });
}
