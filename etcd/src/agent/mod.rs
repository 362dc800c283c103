//! The agent of one member: it is the parent of etcd, fills an empty data directory, takes snapshots and says how things stand.
//!
//! ```text
//!            ┌ begin ────────── may etcd start, and how? (volume, the other members, a backup)
//! config ──► supervisor ──────► guard ──► etcd
//!            ▲                  └ ends etcd when the agent dies, hangs, or does not renew the deadline
//!            └ orders: serve, run privately, stop
//! http ────► status, readiness, snapshots
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`config`], [`settings`] | the file, and what it means for this member |
//! | [`volume`] | whose the volume is, and what is in it; removes nothing |
//! | [`begin`] | from the volume to the flags with which etcd starts |
//! | `founding` | what founders restore: all of them the same |
//! | [`standby`], `standby_etcd`, `takeover` | a volume that follows the snapshots of another etcd until its member may found its own |
//! | [`flags`] | the command line of etcd; pure |
//! | `version` | whether etcd knows the flags that it is given |
//! | [`supervisor`] | starts and ends etcd, by order |
//! | [`guard`], [`clock`], `client_proxy` | the process between, the deadline that it keeps, and the proxy for clients |
//! | `identity` | who the member is, written beside its data |
//! | `backups` | snapshots by schedule and by request, where etcd leads |
//! | `owner`, `final_snapshot`, `mark` | whether clients may be served, by the record in DNS; the final snapshot; what is remembered of both |
//! | `final_delta` | the last events of an etcd that has lost ownership, for those who follow its deltas |
//! | [`clients`] | the agent as a client of etcd |
//! | `gateway` | the way of clients to all members, held while the leader moves |
//! | [`report`] | what the agent says of itself |
//!
//! Nothing here removes data of etcd, and no failure of a backup has a say in whether the member is ready.

mod backups;
pub mod begin;
mod checks;
mod child;
mod client_proxy;
pub mod clients;
pub mod clock;
mod connection_limiter;
mod final_delta;
mod final_snapshot;
pub mod flags;
mod founding;
mod gateway;
pub mod guard;
mod history;
mod http;
mod identity;
mod identity_recorder;
mod mark;
mod metrics;
mod owner;
pub mod report;
pub mod settings;
pub mod standby;
mod standby_etcd;
pub mod supervisor;
mod takeover;
mod version;
pub mod volume;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use etcd_client::Client;
use repot_certs::{
    clients::Authorities,
    tls::{Serving, ServingFiles},
};
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::sync::CancellationToken;

use backups::{Backups, Taker};
use begin::Bootstrapper;
pub use child::Programs;
pub use client_proxy::ProxyAddresses;
use report::StatusReporter;
use settings::Settings;
use standby::Standby;
use supervisor::{Etcd, Supervisor};
use volume::{Label, Volume};

/// An agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its port is not to be had.
    #[error("failed to listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Its certificate cannot be used.
    #[error("failed to load the serving certificate")]
    Certificate(#[from] repot_certs::tls::Error),
    /// The authorities of its clients cannot be used.
    #[error("failed to load the authorities of clients")]
    Authorities(#[from] repot_certs::clients::Error),
    /// Its volume cannot be used.
    #[error(transparent)]
    Volume(#[from] volume::Error),
    /// Its gateway cannot be opened.
    #[error("the gateway cannot be opened")]
    Gateway(#[from] crate::gateway::Error),
    /// The certificate for members cannot be read.
    #[error("the gateway cannot reach members")]
    Access(#[from] clients::Error),
}

/// What the parts of a running agent share.
struct Agent {
    settings: Arc<Settings>,
    supervisor: Supervisor,
    board: StatusReporter,
    backups: Backups,
    gateway: Option<gateway::HostedGateway>,
    /// Somebody asks for a look at the owner record.
    owner_check: Notify,
    /// Room for the database while a snapshot is taken.
    scratch: PathBuf,
}

impl Agent {
    /// A client of the etcd that runs.
    async fn client(&self) -> Result<Client, clients::Error> {
        let at = self.supervisor.seen().at.ok_or(clients::Error::NotRunning)?;
        clients::local(&self.settings, at).await
    }
}

/// An agent that has its port and its volume.
pub struct Prepared {
    agent: Arc<Agent>,
    bootstrapper: Bootstrapper,
    taker: Taker,
    listener: TcpListener,
    tls: Option<http::Tls>,
}

impl Prepared {
    /// Takes the port and the volume. etcd is not started yet.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn new(settings: Settings, programs: Programs) -> Result<Self, Error> {
        let settings = Arc::new(settings);
        let config = &settings.config;
        let tls = config.tls.server.as_ref().map(|dir| {
            let files = ServingFiles { certificate: dir.join("tls.crt"), key: dir.join("tls.key") };
            Ok::<_, Error>(http::Tls {
                serving: Serving::load(files.into())?,
                authorities: Authorities::load(dir.join("ca.crt"))?,
            })
        });
        let tls = tls.transpose()?;
        let address = SocketAddr::new(settings.address, config.ports.agent);
        let listener =
            TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
        let label = Label {
            etcd: format!("{}/{}", config.namespace, config.name),
            volumes: config.volumes.clone(),
            cluster_token: config.cluster_token.clone(),
            member: settings.own.name.clone(),
        };
        let volume = Volume::open(&config.data_dir, label)?;
        let gateway = gateway::HostedGateway::open(&settings).await?;
        let board = StatusReporter::default();
        let serves = config.owner.is_none() && !owner::stays_down_without_record(&config.data_dir, &board);
        let etcd = if serves { Etcd::Serves } else { Etcd::Stopped };
        let (backups, inbox) = Backups::new();
        let agent = Arc::new(Agent {
            supervisor: Supervisor::new(etcd),
            board: board.clone(),
            backups,
            gateway,
            owner_check: Notify::new(),
            scratch: std::env::temp_dir(),
            settings: settings.clone(),
        });
        let taker = Taker::new(agent.clone(), inbox);
        Ok(Self {
            agent,
            bootstrapper: Bootstrapper { settings, volume, programs, board, standby: Standby::default() },
            taker,
            listener,
            tls,
        })
    }

    /// The URL of its HTTP.
    #[must_use]
    pub fn url(&self) -> String {
        let settings = &self.agent.settings;
        format!(
            "{}://{}:{}",
            settings::scheme(self.tls.is_some()),
            settings.address,
            settings.config.ports.agent
        )
    }

    /// Runs until `stop`, and until etcd has ended then.
    pub async fn run(self, stop: CancellationToken) {
        let Self { agent, bootstrapper, taker, listener, tls } = self;
        // Questions are answered until etcd is gone.
        let end = CancellationToken::new();
        let etcd = async {
            agent.supervisor.run(&bootstrapper, &stop).await;
            end.cancel();
        };
        let backups = taker.run(&stop);
        let identity = identity_recorder::follow(&agent, &bootstrapper.volume, &stop);
        let ownership = async {
            if let Some(settings) = &agent.settings.owner {
                owner::run(&agent, settings, &bootstrapper.volume, &stop).await;
            }
        };
        // As long as etcd, which has clients that find another way when it ends.
        let gateway = async {
            if let Some(gateway) = &agent.gateway {
                gateway.run(&agent.settings, &end).await;
            }
        };
        let http = http::serve(listener, agent.clone(), tls, end.clone());
        tokio::join!(etcd, ownership, backups, identity, gateway, http);
    }
}
