//! The counting cloud: virtual machines of Shoots as entries in a small server, with counters of what it was asked for.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::Client;
use serde_json::Value;

use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::{binaries, port};

const START_DEADLINE: Duration = Duration::from_secs(60);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The program with the cloud and the machine controller for it (`tests/go/mcm`).
pub const PROGRAM: &str = "mcm";

/// A running cloud, which the seeds of a landscape share. It ends, with all its machines, when it is dropped.
pub struct Cloud {
    process: Process,
    client: CloudClient,
    port: u16,
}

/// Reads what a cloud has.
#[derive(Clone)]
pub struct CloudClient {
    client: Client,
    url: String,
}

/// A virtual machine of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Unique among all machines ever made.
    pub provider_id: String,
    /// The name of the Machine and of the Node.
    pub name: String,
    /// The technical ID of its Shoot.
    pub cluster: String,
    /// The zone of its MachineClass, which may have none.
    pub zone: String,
}

/// What a cloud was asked for since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// VMs that were created.
    pub created: u64,
    /// VMs that were deleted.
    pub deleted: u64,
}

impl Cloud {
    /// Starts a cloud without machines, and waits until it answers.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let port = port::reserve()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port)).to_string();
        let spec = Spec::new("cloud", binaries::find(PROGRAM)?).args(["cloud", "--address", &address]);
        let mut process = Process::start(env, spec)?;
        let client = Client::builder().no_proxy().timeout(CALL_TIMEOUT).build()?;
        let client = CloudClient { client, url: format!("http://{address}") };
        process.ready(START_DEADLINE, async || client.counters().await.map(drop)).await?;
        Ok(Self { process, client, port })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client of it.
    pub fn client(&self) -> CloudClient {
        self.client.clone()
    }

    /// Its process, to pause it. A cloud that is killed loses its machines.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl CloudClient {
    /// All machines, in the order in which they were created.
    pub async fn vms(&self) -> Result<Vec<Vm>> {
        let answer = self.get("/vms").await?;
        let vms = answer.as_array().context("the cloud gave no list")?;
        vms.iter().map(Vm::parse).collect()
    }

    /// What the cloud was asked for since it was started.
    pub async fn counters(&self) -> Result<Counters> {
        let answer = self.get("/counters").await?;
        let count = |field: &str| answer[field].as_u64().with_context(|| format!("no counter {field}"));
        Ok(Counters { created: count("created")?, deleted: count("deleted")? })
    }

    /// The machines of one Shoot, in the order in which they were created.
    pub async fn vms_of(&self, cluster: &str) -> Result<Vec<Vm>> {
        Ok(self.vms().await?.into_iter().filter(|vm| vm.cluster == cluster).collect())
    }

    /// What the cloud was asked for by one Shoot.
    pub async fn counters_of(&self, cluster: &str) -> Result<Counters> {
        let answer = self.get("/counters").await?;
        let count = |field: &str| answer[field][cluster].as_u64().unwrap_or_default();
        Ok(Counters { created: count("createdIn"), deleted: count("deletedIn") })
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.client.get(format!("{}{path}", self.url)).send().await?;
        Ok(answer.error_for_status()?.json().await?)
    }
}

impl Vm {
    fn parse(value: &Value) -> Result<Self> {
        let field = |name: &str| {
            let text = value[name].as_str().with_context(|| format!("a VM without {name}"))?;
            anyhow::Ok(text.to_owned())
        };
        Ok(Self {
            provider_id: field("providerID")?,
            name: field("name")?,
            cluster: field("cluster")?,
            zone: field("zone")?,
        })
    }
}
