//! The own etcd of a member that stands by. It runs as it does when the member serves, and clients are let in later: so a large one
//! need not be started in an outage.
//!
//! It runs in its data directory, and calls it `.`: the directory is renamed while it runs.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use etcd_client::Client;
use futures::future::{BoxFuture, FutureExt};
use tokio::{
    runtime::Handle,
    sync::Mutex,
    time::{Instant, sleep},
};

use super::{
    child::{Child, Programs, STOP_GRACE, free_port},
    clients,
    flags::{self, Entry, Listen},
    settings::{Settings, chain},
};
use crate::snapshot::restore::follow::MemberEtcd;

/// How long it may take to serve. It opens a database of many GiB.
const START: Duration = Duration::from_secs(300);
/// How long it has for one answer.
const PROBE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);
/// A lease that ended may have taken so many keys along in one revision, which is replayed as one transaction.
const OPERATIONS: &str = "max-txn-ops=10000";
/// A revision comes with what its transaction demands to find.
const REQUEST_BYTES: &str = "max-request-bytes=10485760";

/// An etcd that runs and has no clients.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) child: Child,
    pub(super) listen: Listen,
}

/// The etcd of a standby, from its start until the supervisor takes it over.
#[derive(Debug)]
pub(super) struct StandbyEtcd {
    settings: Arc<Settings>,
    programs: Programs,
    /// Where its processes are waited for: a standby has a runtime of its own, which ends before they do.
    runtime: Handle,
    running: Mutex<Option<Running>>,
}

impl StandbyEtcd {
    pub(super) fn new(settings: Arc<Settings>, programs: Programs) -> Self {
        Self { settings, programs, runtime: Handle::current(), running: Mutex::new(None) }
    }

    /// The one that runs, for whoever lets clients in.
    pub(super) async fn take(&self) -> Option<Running> {
        self.running.lock().await.take()
    }

    async fn launch(&self, data_dir: &Path) -> io::Result<(Child, Listen)> {
        let listen = Listen::private(free_port().await?);
        let entry = Entry::founding(&self.settings);
        let mut args = flags::render(&self.settings, Path::new("."), &entry, &listen);
        let is_given = |flag: &str| {
            let name = flag.split('=').next().unwrap_or_default();
            self.settings.config.etcd_flags.contains_key(name)
        };
        let more = [OPERATIONS, REQUEST_BYTES].into_iter().filter(|flag| !is_given(flag));
        args.extend(more.map(|flag| format!("--{flag}").into()));
        let (dir, programs) = (data_dir.to_owned(), self.programs.clone());
        let started = self.runtime.spawn(async move { Child::start_in(&dir, &programs, args).await });
        let child = started.await.map_err(io::Error::other)??;
        Ok((child, listen))
    }

    /// Waits until it answers.
    async fn client(&self, child: &mut Child, listen: &Listen) -> Result<Client, String> {
        let end = Instant::now() + START;
        let client = clients::local(&self.settings, listen.local()).await.map_err(|error| chain(&error))?;
        loop {
            let answer = tokio::select! {
                ending = child.wait() => return Err(format!("ended before it served: {ending}")),
                answer = clients::read(&client, PROBE) => answer,
            };
            match answer {
                Ok(_) => return Ok(client),
                Err(error) if Instant::now() >= end => {
                    return Err(format!("does not serve within {START:?}: {}", chain(&error)));
                }
                Err(_) => sleep(POLL).await,
            }
        }
    }
}

impl MemberEtcd for StandbyEtcd {
    fn start(&self, data_dir: PathBuf) -> BoxFuture<'_, Result<Client, String>> {
        async move {
            self.end().await;
            let launched = self.launch(&data_dir).await;
            let (mut child, listen) = launched.map_err(|error| format!("cannot be started: {error}"))?;
            let client = self.client(&mut child, &listen).await?;
            tracing::info!(pid = child.pid(), at = %listen.local(), "the etcd of the standby is started");
            *self.running.lock().await = Some(Running { child, listen });
            Ok(client)
        }
        .boxed()
    }

    fn ended(&self) -> Option<String> {
        // Whoever holds it is about to end it or to take it.
        let mut running = self.running.try_lock().ok()?;
        match running.as_mut() {
            Some(running) => Some(format!("ended: {}", running.child.wait().now_or_never()?)),
            None => Some("was ended".to_owned()),
        }
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        async move {
            if let Some(running) = self.take().await {
                running.child.stop(STOP_GRACE).await;
            }
        }
        .boxed()
    }
}
