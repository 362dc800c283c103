//! What the rules have to know: from a cluster, or from a directory of manifests.

mod access;
mod brief;
mod cluster;
mod directory;
mod distances;
mod follow;

use std::sync::Arc;

use repot_rules::{
    change::Change,
    facts::{Facts, Needs, Settings},
};

pub use self::{
    cluster::{Cluster, Serve},
    directory::{Directory, read_manifests},
};

/// Facts cannot be gathered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory or file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is no YAML. The parser's text is not repeated: it may quote the file.
    #[error("{path} holds no YAML manifests (line {line})")]
    Parse {
        /// Which.
        path: std::path::PathBuf,
        /// Where it ends to be YAML.
        line: usize,
    },
    /// The cluster does not answer.
    #[error("failed to read {what} from the cluster")]
    Live {
        /// What was asked for.
        what: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// What is followed has not been listed yet.
    #[error("the facts are not known yet")]
    NotSynced,
}

/// Where facts come from.
#[derive(Clone)]
pub enum Source {
    /// A cluster.
    Cluster(Arc<Cluster>),
    /// Files.
    Directory(Arc<Directory>),
}

/// Facts with what an operator decided.
#[derive(Clone)]
pub struct World {
    /// Where facts come from.
    pub source: Source,
    /// What an operator decided.
    pub settings: Arc<Settings>,
}

impl World {
    /// What the rules have to know of a change.
    ///
    /// # Errors
    /// [`Error::Live`], [`Error::NotSynced`].
    pub async fn gather(&self, change: &Change) -> Result<Facts, Error> {
        let needs = Needs::of(change);
        let facts = Facts { now: now(), settings: self.settings.clone(), ..Facts::default() };
        if needs.is_empty() {
            return Ok(facts);
        }
        match &self.source {
            Source::Cluster(cluster) => cluster.gather(&needs, change, facts).await,
            Source::Directory(directory) => Ok(directory.gather(&needs, change, facts)),
        }
    }

    /// What is not known yet; nothing when everything is.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        match &self.source {
            Source::Cluster(cluster) => cluster.missing(),
            Source::Directory(_) => Vec::new(),
        }
    }
}

/// The time in whole seconds, as Kubernetes writes it.
fn now() -> String {
    let seconds = jiff::Timestamp::now().as_second();
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}
