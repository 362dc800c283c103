//! What is wrong with the seed that a control plane leaves, until it is healed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::dns::Fate;
use repot_tests::landscape::seed::Seed;
use repot_tests::pods::Cut;
use tokio::time::sleep;

use super::world::World;

/// How late answers of the zone are. An agent waits for four seconds.
const LATE: Duration = Duration::from_millis(2500);
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
    /// Answers of the zone come late, and just in time for who asked.
    SlowDns,
    /// Its Pods get no answers from the zone, while the cache of the seed goes on to answer with the owner record of before.
    StaleDns,
    /// Its kube-apiserver stands still.
    ApiServer,
    /// Its kube-apiserver and all Pods of the Shoot stand still.
    StandsStill,
    /// Its kube-apiserver and all Pods of the Shoot stand still; when the fault ends the Pods are killed, and start again.
    Off,
    /// Its kube-apiserver stands still, and all Pods of the Shoot are killed at once, and start again.
    Killed,
}

/// All faults that there are.
pub const ALL: [Fault; 11] = [
    Fault::Dns,
    Fault::Bucket,
    Fault::DnsAndBucket,
    Fault::Everything,
    Fault::FlappingDns,
    Fault::SlowDns,
    Fault::StaleDns,
    Fault::ApiServer,
    Fault::StandsStill,
    Fault::Off,
    Fault::Killed,
];

/// A seed with a fault, until [`FaultySeed::heal`].
pub struct FaultySeed {
    name: String,
    fault: Fault,
    cuts: Vec<Cut>,
    flaps: Option<Flapping>,
    is_paused: bool,
    /// Containers that stand still, of each Shoot.
    frozen: Vec<Vec<(String, String)>>,
    /// What the cache of the seed says of each owner record, while it is stale.
    stale: Vec<(String, Vec<String>)>,
}

struct Flapping {
    is_over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl FaultySeed {
    /// Brings the fault about, for Shoots of one landscape that are there.
    pub async fn new(worlds: &[&World], name: &str, fault: Fault) -> Result<Self> {
        let mut faulty = Self {
            name: name.to_owned(),
            fault,
            cuts: Vec::new(),
            flaps: None,
            is_paused: false,
            frozen: Vec::new(),
            stale: Vec::new(),
        };
        if let Err(error) = faulty.begin(worlds).await {
            // What tests share is healed, whatever became of the fault.
            let healed = faulty.heal(worlds).await;
            return Err(error.context(format!("the fault was not brought about; healed: {healed:?}")));
        }
        Ok(faulty)
    }

    async fn begin(&mut self, worlds: &[&World]) -> Result<()> {
        let Some(world) = worlds.first() else { return Ok(()) };
        let seed = world.landscape.seed(&self.name)?;
        let (dns, bucket) = (seed.dns_address(), seed.store_address());
        match self.fault {
            Fault::Dns => self.cuts.push(seed.runner.cut_server(dns).await?),
            Fault::Bucket => self.cuts.push(seed.runner.cut_server(bucket).await?),
            Fault::DnsAndBucket => {
                self.cuts.push(seed.runner.cut_server(dns).await?);
                self.cuts.push(seed.runner.cut_server(bucket).await?);
            }
            Fault::Everything => self.cuts.push(seed.runner.cut_servers().await?),
            Fault::FlappingDns => self.flaps = Some(flap(world, &self.name)),
            Fault::SlowDns => seed.names.set_zone(Fate::Late(LATE)),
            Fault::StaleDns => self.deceive(worlds, seed).await?,
            Fault::ApiServer | Fault::StandsStill | Fault::Off | Fault::Killed => {
                self.stop(worlds, seed).await?
            }
        }
        Ok(())
    }

    /// The cache of the seed learns the owner records, and then nothing more.
    async fn deceive(&mut self, worlds: &[&World], seed: &Seed) -> Result<()> {
        for world in worlds {
            let record = world.name().owner_domain();
            let texts = seed.names.resolver_of_cache().texts(&record).await?;
            ensure!(texts.len() == 1, "{record} has {texts:?}");
            self.stale.push((record, texts));
        }
        seed.names.cut_cache(true);
        self.cuts.push(seed.runner.cut_server(seed.dns_address()).await?);
        Ok(())
    }

    async fn stop(&mut self, worlds: &[&World], seed: &Seed) -> Result<()> {
        let mut containers = Vec::new();
        for world in worlds {
            containers.push(world.containers(&self.name).await?);
        }
        seed.cluster.apiserver_process().pause();
        self.is_paused = true;
        for (world, containers) in worlds.iter().zip(&containers) {
            match self.fault {
                Fault::StandsStill | Fault::Off => world.freeze(&self.name, containers, true)?,
                Fault::Killed => kill(world, seed, containers)?,
                _ => {}
            }
        }
        if matches!(self.fault, Fault::StandsStill | Fault::Off) {
            self.frozen = containers;
        }
        Ok(())
    }

    /// Ends the fault, whatever it is.
    ///
    /// Errors: also when a cache that should have been stale was not.
    pub async fn heal(self, worlds: &[&World]) -> Result<()> {
        let Some(world) = worlds.first() else { return Ok(()) };
        let seed = world.landscape.seed(&self.name)?;
        if let Some(flaps) = self.flaps {
            flaps.is_over.store(true, Ordering::Relaxed);
            flaps.task.await??;
        }
        seed.names.set_zone(Fate::Pass);
        let deceived = deceived(seed, &self.stale).await;
        seed.names.cut_cache(false);
        for cut in self.cuts {
            seed.runner.heal(cut).await?;
        }
        for (world, frozen) in worlds.iter().zip(&self.frozen) {
            match self.fault {
                Fault::Off => kill(world, seed, frozen)?,
                _ => world.freeze(&self.name, frozen, false)?,
            }
        }
        if self.is_paused {
            seed.cluster.apiserver_process().resume();
        }
        deceived
    }
}

fn kill(world: &World, seed: &Seed, containers: &[(String, String)]) -> Result<()> {
    let namespace = world.name().technical_id();
    containers.iter().try_for_each(|(pod, container)| seed.runner.kill(&namespace, pod, container))
}

/// Fails unless the cache of the seed says what it said before.
async fn deceived(seed: &Seed, stale: &[(String, Vec<String>)]) -> Result<()> {
    for (record, before) in stale {
        let texts = seed.names.resolver_of_cache().texts(record).await?;
        ensure!(
            texts == *before,
            "the cache has learnt that {record} is {texts:?}, and no longer {before:?}"
        );
    }
    Ok(())
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
