//! What is wrong with the seed that a control plane leaves, until it is healed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use repot_tests::landscape::seed::Seed;
use repot_tests::pods::Cut;
use tokio::time::sleep;

use super::world::World;

/// How long an answer of DNS stays away, and how long it comes, while the network flaps.
const FLAP: Duration = Duration::from_secs(4);

/// What is wrong with a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its Pods get no answers from DNS.
    Dns,
    /// Its Pods get no answers from the bucket.
    Bucket,
    /// Both.
    DnsAndBucket,
    /// Its kube-apiserver, the garden, DNS and the bucket.
    Everything,
    /// DNS, a few seconds at a time.
    FlappingDns,
    /// Its kube-apiserver stands still.
    ApiServer,
    /// Its kube-apiserver and all Pods of the Shoot stand still.
    StandsStill,
    /// Its kube-apiserver stands still, and all Pods of the Shoot are killed at once, and start again.
    Killed,
}

/// All faults that there are.
pub const ALL: [Fault; 8] = [
    Fault::Dns,
    Fault::Bucket,
    Fault::DnsAndBucket,
    Fault::Everything,
    Fault::FlappingDns,
    Fault::ApiServer,
    Fault::StandsStill,
    Fault::Killed,
];

/// A seed with a fault, until [`FaultySeed::heal`].
pub struct FaultySeed {
    name: String,
    cuts: Vec<Cut>,
    flaps: Option<Flapping>,
    is_paused: bool,
    frozen: Vec<(String, String)>,
}

struct Flapping {
    is_over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl FaultySeed {
    /// Brings the fault about.
    pub async fn new(world: &World, name: &str, fault: Fault) -> Result<Self> {
        let seed = world.landscape.seed(name)?;
        let (dns, bucket) = (seed.dns_address(), seed.store_address());
        let mut faulty = Self {
            name: name.to_owned(),
            cuts: Vec::new(),
            flaps: None,
            is_paused: false,
            frozen: Vec::new(),
        };
        match fault {
            Fault::Dns => faulty.cuts.push(seed.runner.cut_server(dns).await?),
            Fault::Bucket => faulty.cuts.push(seed.runner.cut_server(bucket).await?),
            Fault::DnsAndBucket => {
                faulty.cuts.push(seed.runner.cut_server(dns).await?);
                faulty.cuts.push(seed.runner.cut_server(bucket).await?);
            }
            Fault::Everything => faulty.cuts.push(seed.runner.cut_servers().await?),
            Fault::FlappingDns => faulty.flaps = Some(flap(world, name)),
            Fault::ApiServer | Fault::StandsStill | Fault::Killed => {
                faulty.stop(world, seed, fault).await?;
            }
        }
        Ok(faulty)
    }

    async fn stop(&mut self, world: &World, seed: &Seed, fault: Fault) -> Result<()> {
        let containers = world.containers(&self.name).await?;
        seed.cluster.apiserver_process().pause();
        self.is_paused = true;
        match fault {
            Fault::StandsStill => {
                world.freeze(&self.name, &containers, true)?;
                self.frozen = containers;
            }
            Fault::Killed => {
                for (pod, container) in &containers {
                    seed.runner.kill(&world.name().technical_id(), pod, container)?;
                }
            }
            Fault::Dns | Fault::Bucket | Fault::DnsAndBucket | Fault::Everything => {}
            Fault::FlappingDns | Fault::ApiServer => {}
        }
        Ok(())
    }

    /// Ends the fault, whatever it is.
    pub async fn heal(self, world: &World) -> Result<()> {
        let seed = world.landscape.seed(&self.name)?;
        if let Some(flaps) = self.flaps {
            flaps.is_over.store(true, Ordering::Relaxed);
            flaps.task.await??;
        }
        for cut in self.cuts {
            seed.runner.heal(cut).await?;
        }
        world.freeze(&self.name, &self.frozen, false)?;
        if self.is_paused {
            seed.cluster.apiserver_process().resume();
        }
        Ok(())
    }
}

fn flap(world: &World, name: &str) -> Flapping {
    let (landscape, is_over) = (world.landscape.clone(), Arc::new(AtomicBool::new(false)));
    let (ended, name) = (is_over.clone(), name.to_owned());
    let task = tokio::spawn(async move {
        let seed = landscape.seed(&name)?;
        while !ended.load(Ordering::Relaxed) {
            let cut = seed.runner.cut_server(seed.dns_address()).await?;
            sleep(FLAP).await;
            seed.runner.heal(cut).await?;
            sleep(FLAP).await;
        }
        Ok(())
    });
    Flapping { is_over, task }
}
