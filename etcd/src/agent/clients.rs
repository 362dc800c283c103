//! The agent as a client of etcd.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use etcd_client::{Client, GetOptions, Member};
use repot_etcd_core::snapshot::Revision;
use tokio::time::timeout;

use super::settings::{Settings, scheme};
use crate::link;

/// etcd could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate or key cannot be read.
    #[error("failed to read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// etcd did not answer as it should.
    #[error("failed to {task}")]
    Etcd {
        /// What was asked of it.
        task: &'static str,
        /// Why.
        #[source]
        source: Box<etcd_client::Error>,
    },
    /// It did not answer in time.
    #[error("failed to {task} within {after:?}")]
    Slow {
        /// What was asked of it.
        task: &'static str,
        /// The time it had.
        after: Duration,
    },
    /// etcd does not run.
    #[error("etcd is not running")]
    NotRunning,
}

impl Error {
    pub(super) fn of(task: &'static str) -> impl FnOnce(etcd_client::Error) -> Self {
        move |source| Self::Etcd { task, source: Box::new(source) }
    }
}

/// A client of the etcd of this agent.
///
/// # Errors
/// [`Error::File`], [`Error::Etcd`].
pub async fn local(settings: &Settings, at: SocketAddr) -> Result<Client, Error> {
    let url = format!("{}://{at}", scheme(settings.config.tls.server.is_some()));
    // Certificates are for the names by which others reach the member, and need not be for addresses.
    let name = settings.own.client_urls.first().and_then(|url| url::Url::parse(url).ok());
    let name = name.and_then(|url| url.host_str().map(|host| host.trim_matches(['[', ']']).to_owned()));
    connect(settings, vec![url], name).await
}

/// A client of the cluster, by URLs.
///
/// # Errors
/// [`Error::File`], [`Error::Etcd`].
pub async fn connect(
    settings: &Settings,
    endpoints: Vec<String>,
    server_name: Option<String>,
) -> Result<Client, Error> {
    let options = link::Options { endpoints, server_name, ..access(settings)? };
    link::connect(&options).await.map_err(Error::of("connect"))
}

/// The certificate of the agent, and who may have signed those of members.
///
/// # Errors
/// [`Error::File`].
pub fn access(settings: &Settings) -> Result<link::Options, Error> {
    let mut options = link::Options::default();
    if let Some(dir) = &settings.config.tls.client {
        // Read each time: certificates are renewed.
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read(&path).map_err(|source| Error::File { path, source })
        };
        options.ca = Some(read("ca.crt")?);
        options.identity = Some((read("tls.crt")?, read("tls.key")?));
    }
    Ok(options)
}

/// Reads from the cluster, linearizably: the answer says that there is a quorum, and the revision.
///
/// # Errors
/// [`Error::Etcd`], [`Error::Slow`].
pub async fn read(client: &Client, patience: Duration) -> Result<Revision, Error> {
    const TASK: &str = "read linearizably";
    let options = GetOptions::new().with_count_only();
    let mut kv = client.kv_client();
    let answer = timeout(patience, kv.get("health", Some(options))).await;
    let answer = answer.map_err(|_| Error::Slow { task: TASK, after: patience })?.map_err(Error::of(TASK))?;
    Ok(Revision(answer.header().map_or(0, etcd_client::ResponseHeader::revision)))
}

/// The members, as the one that is asked knows them.
///
/// # Errors
/// [`Error::Etcd`], [`Error::Slow`].
pub async fn members(client: &Client, patience: Duration) -> Result<Vec<Member>, Error> {
    Ok(roster(client, patience).await?.1)
}

/// The same with the id of the cluster.
///
/// # Errors
/// [`Error::Etcd`], [`Error::Slow`].
pub async fn roster(client: &Client, patience: Duration) -> Result<(u64, Vec<Member>), Error> {
    const TASK: &str = "list the members";
    let mut cluster = client.cluster_client();
    let answer = timeout(patience, cluster.member_list()).await;
    let answer = answer.map_err(|_| Error::Slow { task: TASK, after: patience })?.map_err(Error::of(TASK))?;
    let cluster = answer.header().map_or(0, etcd_client::ResponseHeader::cluster_id);
    Ok((cluster, answer.members().to_vec()))
}
