//! The local provider: extension controllers of type `local` for every kind, as tasks of this process.
//!
//! One set of them runs for each seed. All sets share one [`CloudNetworks`], as they share the counting cloud and the DNS zone, and
//! one [`Journal`] of what they did.

mod backup;
mod dns_record;
mod infrastructure;
mod journal;
mod small;
mod subnet_isolation;
mod worker;

use kube::Client;
use repot_extension::backoff::Backoff;
use repot_extension::kinds::{ContainerRuntime, Extension, Network, OperatingSystemConfig};
use repot_extension::kinds::{ControlPlane, ExtensionObject};
use repot_extension::{ExtensionController, Provider, Settings};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::dns::Updater;
use backup::{BucketProvider, EntryProvider};
use dns_record::DnsRecordProvider;
use infrastructure::InfrastructureProvider;
pub use infrastructure::{CloudNetworks, NetworkCounters};
use journal::Log;
pub use journal::{Call, Journal};
use small::SmallProvider;
use subnet_isolation::SubnetIsolationProvider;
use worker::WorkerProvider;

/// `spec.type` of the objects that the provider works on.
pub const TYPE: &str = "local";
/// A failed operation is tried again after so long at first, and after so long at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
const OPERATION_DEADLINE: Duration = Duration::from_secs(120);

/// What the providers of all seeds share.
#[derive(Clone)]
pub struct ProviderContext {
    /// Networks of all Shoots.
    pub networks: CloudNetworks,
    /// What the providers did.
    pub journal: Journal,
    /// Changes the zone of all Shoots.
    pub dns: Updater,
}

/// Running providers of one seed. They end at once when this is dropped, as if their processes were killed.
pub struct Providers {
    /// Ends its tasks when it is dropped.
    _tasks: JoinSet<()>,
}

impl ProviderContext {
    /// A cloud without networks, and an empty journal.
    pub fn new(dns: Updater) -> Self {
        Self { networks: CloudNetworks::default(), journal: Journal::default(), dns }
    }
}

impl Providers {
    /// Starts the controllers of all kinds with a client of the seed.
    pub fn start(seed: &str, client: &Client, context: &ProviderContext) -> Self {
        let mut tasks = JoinSet::new();
        let log = || Log::new(seed, &context.journal);
        spawn(&mut tasks, client, DnsRecordProvider { dns: context.dns.clone(), log: log() });
        spawn(&mut tasks, client, InfrastructureProvider { networks: context.networks.clone(), log: log() });
        spawn(&mut tasks, client, WorkerProvider { log: log() });
        let networks = context.networks.clone();
        spawn(&mut tasks, client, SubnetIsolationProvider { networks, log: log() });
        spawn(&mut tasks, client, SmallProvider::<ControlPlane>::new(log()));
        spawn(&mut tasks, client, SmallProvider::<Network>::new(log()));
        spawn(&mut tasks, client, SmallProvider::<OperatingSystemConfig>::new(log()));
        spawn(&mut tasks, client, SmallProvider::<ContainerRuntime>::new(log()));
        spawn(&mut tasks, client, SmallProvider::<Extension>::new(log()));
        spawn(&mut tasks, client, BucketProvider(log()));
        spawn(&mut tasks, client, EntryProvider(log()));
        Self { _tasks: tasks }
    }
}

fn spawn<P: Provider<Object: ExtensionObject>>(tasks: &mut JoinSet<()>, client: &Client, provider: P) {
    let settings = Settings {
        backoff: Backoff { initial: BACKOFF.0, max: BACKOFF.1 },
        deadline: OPERATION_DEADLINE,
        ..Settings::new(TYPE)
    };
    let controller = ExtensionController::new(client.clone(), provider, settings);
    tasks.spawn(controller.run(CancellationToken::new()));
}
