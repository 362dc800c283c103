//! What the rules have to know: from a cluster, or from a directory of manifests.

mod access;
mod brief;
mod circuit;
mod cluster;
mod directory;
mod follow;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use repot_api::gardener::shoot::Shoot;
use repot_rules::{
    change::Change,
    facts::{Facts, RequiredFacts, Settings},
    watch::Watch,
};
use serde_json::Value;

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
    /// The cluster takes too long.
    #[error("the facts did not come within {limit:?}")]
    Late {
        /// How long was waited.
        limit: Duration,
    },
    /// The cluster took too long several times.
    #[error("the cluster answered too late several times, and is asked again within {:?}", circuit::PAUSE)]
    CircuitOpen,
    /// What is followed has not been listed yet.
    #[error("the facts are not known yet")]
    NotSynced,
}

impl Error {
    /// Whether the cluster gave no answer at all, in place of one that is a refusal.
    fn is_late(&self) -> bool {
        match self {
            Self::Late { .. } => true,
            Self::Live { source, .. } => !matches!(**source, kube::Error::Api(_)),
            Self::Read { .. } | Self::Parse { .. } | Self::CircuitOpen | Self::NotSynced => false,
        }
    }
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
    /// What the rules of a webhook have to know of a change, within `limit`. To fill in a Shoot what is followed is enough, so a
    /// slow cluster does not keep its annotations from it.
    ///
    /// # Errors
    /// [`Error::Live`], [`Error::Late`], [`Error::CircuitOpen`], [`Error::NotSynced`].
    pub async fn gather(&self, watch: &Watch, change: &Change, limit: Duration) -> Result<Facts, Error> {
        let fills_in_shoot = watch.mutating && change.target.resource == "shoots";
        let needs = RequiredFacts::of(change);
        let facts = Facts { now: now(), settings: self.settings.clone(), ..Facts::default() };
        if fills_in_shoot {
            return Ok(Facts { seeds: self.followed_seed(change), ..facts });
        }
        if needs.is_empty() {
            return Ok(facts);
        }
        match &self.source {
            Source::Cluster(cluster) => cluster.gather(&needs, change, facts, limit).await,
            Source::Directory(directory) => Ok(directory.gather(&needs, change, facts)),
        }
    }

    /// The seed on which a Shoot is to be, if it is known already.
    fn followed_seed(&self, change: &Change) -> BTreeMap<String, Option<Arc<Value>>> {
        let Source::Cluster(cluster) = &self.source else { return BTreeMap::new() };
        let name = Shoot(&change.old).spec_seed();
        let seed = name.and_then(|name| Some((name.to_owned(), Some(cluster.followed_seed(name)?))));
        seed.into_iter().collect()
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
