//! The etcd that a standby applies deltas to: a private one, or the member's own.
//!
//! | | private | the member's own |
//! |---|---|---|
//! | takes | all that the store has at first | what appears later |
//! | flags | for a fast replay: any size of transaction, no syncs | those of the member |
//! | revision | that of the snapshots | raised before its start |
//! | at the end | it ends, and another etcd reads all data again | it runs on, and clients are let in |

use std::{fmt::Debug, path::PathBuf, sync::Arc};

use etcd_client::Client;
use futures::future::BoxFuture;

use crate::snapshot::restore::{Error, Options, Result, private, work::Work};

/// The etcd of a member that stands by, for a standby to start and to end.
pub trait MemberEtcd: Debug + Send + Sync {
    /// Starts it on a data directory, which may be renamed while it runs. Nobody but the standby is served. It gives a client once it
    /// answers; one that ran before is ended first.
    ///
    /// # Errors
    /// Says why it does not serve.
    fn start(&self, data_dir: PathBuf) -> BoxFuture<'_, Result<Client, String>>;

    /// Why it does not run any more; `None` while it does.
    fn ended(&self) -> Option<String>;

    /// Ends it, where it runs.
    fn end(&self) -> BoxFuture<'_, ()>;
}

/// The own etcd of a member; `None`: a private one is to be used.
pub(super) type Own = Option<Arc<dyn MemberEtcd>>;

/// A running etcd, and how it is ended and reached.
pub(super) enum Engine {
    Private(Box<private::Etcd>),
    Own(Arc<dyn MemberEtcd>, Box<Client>),
}

impl Engine {
    pub(super) async fn start(own: Own, options: &Options, work: &Work) -> Result<Self> {
        let Some(own) = own else {
            let name = &options.member.name;
            let etcd = private::Etcd::start_as(&options.etcd, work.dir(), &work.replay(), name).await?;
            return Ok(Self::Private(Box::new(etcd)));
        };
        match own.start(work.replay()).await {
            Ok(client) => Ok(Self::Own(own, Box::new(client))),
            Err(why) => Err(Error::MemberEtcd(why)),
        }
    }

    pub(super) fn client(&self) -> &Client {
        match self {
            Self::Private(etcd) => &etcd.client,
            Self::Own(_, client) => client,
        }
    }

    /// Why it is no longer there; `None` while it is.
    pub(super) fn died(&mut self) -> Option<Error> {
        match self {
            Self::Private(etcd) => etcd.died(),
            Self::Own(own, _) => own.ended().map(Error::MemberEtcd),
        }
    }
}
