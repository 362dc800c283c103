//! A landscape for migrations of whole control planes: a garden with Gardener, seeds that share a cloud and a DNS zone, and Shoots
//! with nodes.
//!
//! Pods need the root user, as in [`crate::pods`].

pub mod authorities;
pub mod carry;
pub mod cloud;
pub mod control_plane;
pub mod controllers;
pub mod dns;
pub mod dns_message;
pub mod etcd;
pub mod extensions;
pub mod forced;
pub mod garden;
pub mod gardenlet;
pub mod isolations;
pub mod konnectivity;
mod kubernetes;
mod load_balancer;
pub mod machines;
pub mod members_gateway;
pub mod memory;
pub mod names;
pub mod node;
mod pod_server;
pub mod provider;
pub mod real_gardenlet;
pub mod requests;
pub mod seed;
pub mod shoot;
pub mod shoot_network;
pub mod story;
pub mod subnets;
pub mod tunnel;
pub mod wide_network;
pub mod world;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use authorities::Authorities;
pub use cloud::Cloud;
pub use control_plane::{ControlPlane, ControlPlaneOptions, DEADLINE};
use controllers::GardenControllers;
pub use dns::Dns;
pub use garden::GardenCluster;
pub use gardenlet::Gardenlet;
use members_gateway::{GatewayKind, MembersGateway};
pub use node::{NodeContext, Nodes};
pub use provider::ProviderContext;
pub use real_gardenlet::RealGardenlet;
pub use seed::Seed;
pub use shoot::ShootName;
pub use shoot_network::ShootNetwork;
use wide_network::WideNetwork;

use crate::test_env::TestEnv;
use crate::wait::until;

/// What a landscape has.
#[derive(Clone, Debug)]
pub struct LandscapeOptions {
    /// Names of the seeds.
    pub seeds: Vec<String>,
    /// Whether there is a garden with Gardener, in which the seeds and Shoots are registered.
    pub garden: bool,
    /// Seeds in which members of etcds are behind one Gateway, and its kind; in others each has a load balancer of its own.
    pub gateways: Vec<(String, GatewayKind)>,
    /// How many migrations one seed may have at once; `None` for the default of the product.
    pub max_migrations_per_seed: Option<usize>,
}

/// A running landscape. Everything in it ends when it is dropped.
pub struct Landscape {
    /// The controllers of the garden, when there is a garden.
    pub controllers: Option<Mutex<GardenControllers>>,
    /// The garden, when the options ask for it.
    pub garden: Option<GardenCluster>,
    /// The seeds, in the order of their names in the options.
    pub seeds: Vec<Seed>,
    /// The DNS zone of Shoots.
    pub dns: Dns,
    /// The cloud of all seeds.
    pub cloud: Cloud,
    /// What the local providers of all seeds share.
    pub providers: ProviderContext,
    /// The network between the seeds.
    pub wide: Arc<WideNetwork>,
    _gateways: Vec<MembersGateway>,
}

/// A Shoot of a landscape with its nodes.
pub struct Shoot {
    /// Its control plane in a seed.
    pub control_plane: ControlPlane,
    /// Its nodes, which stay when the control plane moves.
    pub nodes: Nodes,
    /// The network of its nodes, where they have one.
    pub network: Option<Arc<ShootNetwork>>,
}

impl Default for LandscapeOptions {
    fn default() -> Self {
        Self {
            seeds: ["seed-a", "seed-b"].map(str::to_owned).into(),
            garden: true,
            gateways: Vec::new(),
            max_migrations_per_seed: None,
        }
    }
}

impl Landscape {
    /// Starts everything but Shoots, and waits until it serves.
    pub async fn start(env: &TestEnv, options: LandscapeOptions) -> Result<Self> {
        let (dns, cloud) = (Dns::start(env).await?, Cloud::start(env).await?);
        let (providers, wide) = (ProviderContext::new(dns.updater()), Arc::new(WideNetwork::default()));
        let garden = async {
            match options.garden {
                true => GardenCluster::start(env).await.map(Some),
                false => Ok(None),
            }
        };
        // Clusters mostly wait for one another's parts while they start, so all of them start at the same time.
        let seeds = options.seeds.iter().map(|name| Seed::start(env, name, &cloud, &dns, &providers, &wide));
        let (garden, seeds) = try_join(garden, try_join_all(seeds)).await?;
        if let Some(garden) = &garden {
            let all = seeds.iter().map(async |seed| {
                garden.register_seed(&seed.name, &seed.backup_secret(&seed.name)["stringData"]).await
            });
            try_join_all(all).await?;
        }
        for (seed, other) in seeds.iter().flat_map(|seed| seeds.iter().map(move |other| (seed, other))) {
            if seed.name != other.name {
                seed.reach_store_of(other)?;
            }
        }
        let kind_of = |seed: &Seed| options.gateways.iter().find(|(name, _)| *name == seed.name);
        let behind = seeds.iter().filter_map(|seed| kind_of(seed).map(|(_, kind)| (seed, *kind)));
        let gateways = behind.map(|(seed, kind)| MembersGateway::start(env, seed, &wide, kind));
        let gateways = try_join_all(gateways).await?;
        let controllers = match &garden {
            Some(garden) => {
                let all = seeds.iter().map(async |seed| {
                    let flag = kind_of(seed).map(|(_, kind)| kind.flag());
                    controllers::start_in_seed(garden, seed, flag.as_slice()).await
                });
                try_join_all(all).await?;
                let flag =
                    options.max_migrations_per_seed.map(|most| format!("--max-migrations-per-seed={most}"));
                Some(Mutex::new(controllers::start_in_garden(env, garden, flag.as_slice()).await?))
            }
            None => None,
        };
        Ok(Self { controllers, garden, seeds, dns, cloud, providers, wide, _gateways: gateways })
    }

    /// The seed of that name.
    ///
    /// Errors: when there is none.
    pub fn seed(&self, name: &str) -> Result<&Seed> {
        self.seeds.iter().find(|seed| seed.name == name).with_context(|| format!("there is no seed {name}"))
    }

    /// Creates a Shoot in a seed, and waits until all its nodes are Ready.
    pub async fn create_shoot(
        &self,
        env: &TestEnv,
        shoot: ShootName,
        seed: &str,
        options: ControlPlaneOptions,
    ) -> Result<Shoot> {
        let authorities = Arc::new(Authorities::make(&env.make_dir("shoot-keys")?)?);
        let network = match options.tunnel || options.network {
            true => Some(Arc::new(self.start_network(env, &shoot, &authorities).await?)),
            false => None,
        };
        let context = NodeContext {
            shoot: shoot.clone(),
            authorities: authorities.clone(),
            resolver: self.dns.resolver(),
            network: network.clone(),
        };
        let nodes = Nodes::start(self.cloud.client(), context);
        let control_plane = ControlPlane::new(shoot, authorities, options);
        if let Some(garden) = &self.garden {
            garden.create_shoot(&control_plane.shoot, seed, &control_plane.options).await?;
        }
        let cluster = self.cluster_of(&control_plane.shoot, seed).await?;
        control_plane.deploy(self.seed(seed)?, &self.dns, &cluster).await?;
        let shoot = Shoot { control_plane, nodes, network };
        shoot.wait_until_ready(&self.dns).await?;
        if shoot.control_plane.options.tunnel {
            let nodes = shoot.ready_nodes(&self.dns).await?;
            let (_, node) = nodes.first().context("a Shoot with a tunnel needs a node")?;
            shoot.control_plane.deploy_tunnel(env, self.seed(seed)?, node).await?;
        }
        Ok(shoot)
    }

    async fn start_network(
        &self,
        env: &TestEnv,
        shoot: &ShootName,
        authorities: &Arc<Authorities>,
    ) -> Result<ShootNetwork> {
        tunnel::add_image(self)?;
        let network = ShootNetwork::start(env, shoot, authorities, &self.dns, &self.wide).await?;
        self.providers.networks.attach(&shoot.technical_id(), network.subnets());
        Ok(network)
    }

    /// Ends all Pods of a Shoot in a seed, so that other Shoots have the machine to themselves. Its extension resources stay.
    pub async fn stop_shoot(&self, shoot: &ShootName, seed: &str) -> Result<()> {
        let (seed, namespace) = (self.seed(seed)?, shoot.technical_id());
        for kinds in ["deployments", "etcds"] {
            seed.cluster.kubectl(["delete", kinds, "--all", "-n", &namespace]).await?.text()?;
        }
        Ok(())
    }

    /// The `spec` of the Cluster of a Shoot in a seed, from the garden where there is one.
    pub async fn cluster_of(&self, shoot: &ShootName, seed: &str) -> Result<Value> {
        if let Some(garden) = &self.garden {
            return garden.cluster_of(shoot, seed).await;
        }
        let metadata =
            json!({"namespace": shoot.project_namespace(), "name": shoot.name, "uid": shoot.technical_id()});
        let status = json!({"technicalID": shoot.technical_id(), "seedName": seed});
        Ok(json!({
            "shoot": {"metadata": metadata, "status": status}, "seed": {"metadata": {"name": seed}},
            "cloudProfile": {},
        }))
    }
}

impl Shoot {
    /// Waits until all machines of all pools have a Node that is Ready. The label of the pool comes from
    /// machine-controller-manager, a little after the Node.
    pub async fn wait_until_ready(&self, dns: &Dns) -> Result<()> {
        until("all nodes to be Ready", DEADLINE, async || {
            let ready = self.ready_nodes(dns).await?;
            for (pool, machines) in &self.control_plane.options.pools {
                let count = ready.iter().filter(|(of, _)| of == pool).count();
                let errors = self.nodes.errors();
                ensure!(
                    u32::try_from(count)? == *machines,
                    "{pool}: {ready:?} are Ready; errors: {errors:?}"
                );
            }
            Ok(())
        })
        .await
    }

    /// The pool and the name of each Node that is Ready, read through the DNS name of the API.
    pub async fn ready_nodes(&self, dns: &Dns) -> Result<Vec<(String, String)>> {
        let nodes = self.control_plane.api(dns)?.get("/api/v1/nodes").await?.ok()?;
        let is_ready = |node: &&Value| {
            let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes = nodes["items"].as_array().into_iter().flatten().filter(is_ready);
        Ok(nodes
            .map(|node| {
                let metadata = &node["metadata"];
                (text(&metadata["labels"]["worker.gardener.cloud/pool"]), text(&metadata["name"]))
            })
            .collect())
    }
}
