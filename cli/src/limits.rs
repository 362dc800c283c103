//! How large objects may be, and how much of them may be in memory at once: flags of every role that serves them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use repot_apiserver::{
    connection_shares::{CONNECTIONS, ConnectionLimits, LEAST_CONNECTIONS, raise_descriptors},
    memory,
    server::{DEFAULT_OBJECT_BYTES, Limits, MAX_OBJECT_BYTES},
};
use repot_storage::Spool;

use crate::serving::duration;

/// What is left free on the disk of the store by bodies that wait there.
const MIN_FREE: u64 = 512 << 20;

/// Flags that limit objects, watches, connections, requests and memory.
#[derive(Args)]
pub struct LimitFlags {
    /// The largest object, in bytes of its JSON form, up to 256 MiB. One of more than 15 MiB is shown without payload by lists and
    /// watches, whose clients could not read it: GET has it whole
    #[arg(long, default_value_t = DEFAULT_OBJECT_BYTES, value_name = "N", value_parser = object_bytes)]
    pub max_object_bytes: usize,
    /// What the objects of one kind in one namespace may come to, in bytes of their JSON form; more is refused (403) [default: no limit]
    #[arg(long, value_name = "N")]
    pub max_namespace_bytes: Option<u64>,
    /// Watches that one user may have at once; more are refused (429). Anonymous users together may have a twentieth of it, and
    /// members of system:masters any number
    #[arg(long, default_value_t = Limits::default().watches_per_user, value_name = "N", value_parser = watches)]
    pub max_watches_per_user: usize,
    /// A watch is ended when its client has taken nothing for so long although there was something to take
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = stall)]
    pub watch_stall_timeout: Duration,
    /// Connections whose client has shown who it is. One user may have as many as stay free, at least an eighth is for front
    /// proxies and system:masters [default: 2000, or fewer where there are not so many file descriptors]
    #[arg(long, value_name = "N", value_parser = connections)]
    pub max_connections: Option<usize>,
    /// When a request that is not a watch is given up
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = duration)]
    pub request_timeout: Duration,
    /// Bytes of bodies and payloads that may be in memory at once. Requests that find no room wait, their bodies sealed on a disk
    /// [default: 256 MiB, or what writing the largest object takes, if that is more]
    #[arg(long, value_name = "N")]
    max_inflight_bytes: Option<u64>,
    /// Where bodies wait for room in memory; a disk, not memory [default: the directory of the embedded store, else the system's
    /// for temporary files]
    #[arg(long, value_name = "DIR")]
    spool_dir: Option<PathBuf>,
}

impl LimitFlags {
    /// How many connections there may be. Raises the number of file descriptors of this process to what it may be raised to, and
    /// keeps within that. `unauthenticated`: how many without credentials were asked for.
    pub fn connections(&self, unauthenticated: usize) -> ConnectionLimits {
        let authenticated = self.max_connections.unwrap_or(CONNECTIONS);
        let asked = ConnectionLimits { unauthenticated, authenticated };
        let descriptors = raise_descriptors();
        let limits = asked.within(descriptors);
        if limits != asked {
            tracing::warn!(
                descriptors,
                unauthenticated = limits.unauthenticated,
                authenticated = limits.authenticated,
                "fewer connections than asked for: raise the limit of open files (RLIMIT_NOFILE)"
            );
        }
        limits
    }

    /// The budget in bytes. `reviewed`: the largest question to an admission webhook, where any are asked.
    pub fn memory(&self, reviewed: Option<u64>) -> anyhow::Result<u64> {
        let object = self.max_object_bytes as u64;
        match self.max_inflight_bytes {
            None => Ok(Limits::default().memory.max(memory::least(object, reviewed))),
            Some(bytes) if bytes < memory::least(object, None) => bail!(
                "--max-inflight-bytes={bytes} is too little for --max-object-bytes={object}: an object of that size is written \
                 with {} or more",
                memory::least(object, None)
            ),
            Some(bytes) => Ok(bytes),
        }
    }

    /// Where bodies wait. `store`: the directory of the store.
    pub async fn spool(&self, store: Option<&Path>) -> anyhow::Result<Spool> {
        let spool = match (&self.spool_dir, store) {
            (Some(dir), _) => Spool::new(dir, 0),
            (None, Some(dir)) => Spool::new(dir, MIN_FREE),
            (None, None) => Spool::new(std::env::temp_dir(), 0),
        };
        // Known at start, and not by the first large request.
        let usable = spool.probe().await;
        if self.spool_dir.is_some() {
            usable.context("--spool-dir")?;
        } else if let Err(error) = usable {
            tracing::warn!(%error, "bodies cannot wait for room in memory; requests that would have to will fail: set --spool-dir");
        }
        Ok(spool)
    }
}

/// Enough for the share of each kind of client.
fn connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(connections) if connections >= LEAST_CONNECTIONS => Ok(connections),
        _ => Err(format!("must be a whole number of connections, and at least {LEAST_CONNECTIONS}")),
    }
}

/// Long enough for a client that is only slow.
fn stall(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_secs(1) => Err("must be a second or more".to_owned()),
        time => Ok(time),
    }
}

/// At least one watch for each user.
fn watches(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a whole number of watches, and at least 1".to_owned()),
        Ok(watches) => Ok(watches),
    }
}

/// A limit that can be kept.
fn object_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|_| "must be a number of bytes".to_owned())?;
    match bytes {
        1024..=MAX_OBJECT_BYTES => Ok(bytes),
        _ => Err(format!("must be from 1024 to {MAX_OBJECT_BYTES} (256 MiB)")),
    }
}
