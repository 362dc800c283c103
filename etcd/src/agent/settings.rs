//! The configuration of an agent, for one member. [`checks`](super::checks) makes it from a file.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use repot_apimachinery::schedule::Schedule;
use repot_etcd_core::{
    agent::config::{Config, Member, Store as StoreConfig},
    snapshot::{Compression, decide::Retention},
};
use url::Url;

use crate::{owner, snapshot::store};

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not of the form that it should have.
    #[error("{path} is no configuration of an agent: {why}")]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// What it says does not go together.
    #[error("the configuration cannot be used: {}", .0.join("; "))]
    Content(Vec<String>),
}

/// When snapshots are taken, and which are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// When full snapshots are taken.
    pub full: Schedule,
    /// Deltas; none where it is `None`.
    pub delta: Option<Duration>,
    /// Bytes of events after which a delta is saved before its time.
    pub memory: u64,
    /// Which full snapshots are kept in the store.
    pub retention: Retention,
    /// How long the snapshots of a closed history are kept; for ever where it is `None`.
    pub closed_retention: Option<Duration>,
    /// How they are compressed.
    pub compression: Compression,
}

/// A configuration that was checked, for one member.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the configuration file says, as it was read.
    pub config: Config,
    /// The member that this agent is for.
    pub own: Member,
    /// The address to listen on; every address where it is unspecified.
    pub address: IpAddr,
    /// When snapshots are taken, and which are kept.
    pub snapshots: Snapshots,
    /// The record that says who may serve.
    pub owner: Option<owner::Settings>,
    /// How long a standby that may found its etcd waits for the end of the owner before.
    pub final_wait: Duration,
}

/// Reads the file.
///
/// # Errors
/// [`Error::Read`], [`Error::Form`].
pub fn read(path: &Path) -> Result<Config, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    serde_saphyr::from_str(&text)
        .map_err(|error| Error::Form { path: path.to_owned(), why: error.to_string() })
}

/// The scheme of URLs with certificates, and without.
pub(super) fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

/// What is wrong with a URL, if something is.
pub(super) fn url_of(text: &str, scheme: &str) -> Option<String> {
    let Ok(url) = Url::parse(text) else { return Some(format!("{text:?} is no URL")) };
    let bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.username().is_empty();
    match url.scheme() == scheme {
        false => Some(format!("{text:?} must begin with {scheme}://, for that is how it is served by `tls`")),
        true if !bare || url.host().is_none() || url.port().is_none() || text.contains(',') => {
            Some(format!("{text:?} must be {scheme}://<host>:<port> and nothing else"))
        }
        true => None,
    }
}

/// Opens a store of the file, at the history that this etcd writes.
///
/// # Errors
/// As of [`store::Store::open_with`].
pub(super) fn open(config: &StoreConfig) -> Result<store::Store, store::Error> {
    Ok(open_all(config)?.history(history(config)))
}

/// The name of the history that this etcd writes.
pub(super) fn history(config: &StoreConfig) -> &str {
    config.history.as_deref().unwrap_or(store::FIRST_HISTORY)
}

/// Opens it with all its histories.
///
/// # Errors
/// As of [`store::Store::open_with`].
pub(super) fn open_all(config: &StoreConfig) -> Result<store::Store, store::Error> {
    let environment = store::environment();
    store::Store::open_with(
        &config.url,
        &environment,
        config.credentials.as_deref(),
        config.endpoint.as_deref(),
    )
}

/// An error with what caused it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
