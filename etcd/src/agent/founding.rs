//! What the founders of an etcd restore: all of them the same, although each does it for itself.
//!
//! etcd believes its founders to be equal, and compares nothing: each keeps what it began with. But the store may change while they
//! restore one after the other. The etcd before may have a delta on its way, and founders that have a quorum write snapshots of their
//! own. So the first one records what it chose, and the others take the same.
//!
//! ```text
//! <prefix>/founding/<hash of cluster token and owner id>.json
//!     {"chosen": "2026-…", "history": "first", "base": "Full-…", "deltas": ["Incr-…", …]}
//! ```
//!
//! An owner that is named again, with another epoch, chooses again: somebody else may have been the owner in between.
//! It is in the store into which this etcd writes, and written once. Where this etcd has written snapshots since, nothing is restored
//! any more: the member joins those that wrote them. Only a new cluster token, as the operator gives to new volumes, begins again.

use std::{fmt::Display, str::FromStr};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use jiff::Timestamp;
use repot_etcd_core::{
    agent::config::{Config, Store as StoreConfig},
    snapshot::{SnapshotName, chain::Plan},
};
use serde::{Deserialize, Serialize};

use super::settings::{Settings, history, open_all};
use crate::snapshot::{
    codec::Sha256,
    restore::{self, Selection},
    store::{self, Store},
};

/// What the etcd before had on its way is in the store after so many seconds.
const ON_ITS_WAY_SECONDS: i64 = 3600;

/// Why it is not known what to restore.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A store cannot be opened, listed, read or written.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The snapshots in the store do not make up a state.
    #[error(transparent)]
    Plan(#[from] restore::Error),
    /// The record is damaged, or is not one of an agent.
    #[error("{place} does not tell what the founders restore: {why}; remove it where no member has data")]
    BadRecord {
        /// Where the record lies.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody used what was chosen, and the etcd before went on.
    #[error(
        "{base} was chosen at {chosen}, and {newest} was written long after it. Where no member has data, remove {place}: \
         then the newest state is chosen. Otherwise restore with another `volumes` and `clusterToken`"
    )]
    Outdated {
        /// The full snapshot that was chosen.
        base: SnapshotName,
        /// When a founder chose it.
        chosen: Timestamp,
        /// A snapshot that is not among the chosen ones.
        newest: SnapshotName,
        /// Where the record lies.
        place: String,
    },
    /// What the founders began with is not the newest state any more.
    #[error(
        "this etcd was founded before, and {newest} was written since; the member joins when those that wrote it serve. \
         Where they have lost their volumes, restore with another `volumes` and `clusterToken`"
    )]
    WrittenSince {
        /// A snapshot that the founders wrote.
        newest: SnapshotName,
    },
}

/// The choice of the first founder, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    chosen: Timestamp,
    history: String,
    base: String,
    deltas: Vec<String>,
}

impl Choice {
    fn of(history: String, plan: &Plan) -> Self {
        let deltas = plan.deltas.iter().map(ToString::to_string).collect();
        Self { chosen: Timestamp::now(), history, base: plan.base.to_string(), deltas }
    }

    /// What it says. A record is read from a store: nothing in it leads to another place.
    fn plan(&self) -> Result<Plan, String> {
        if !store::is_history_name(&self.history) {
            return Err(format!("{:?} is no name of a history", self.history));
        }
        let name = |text: &String| SnapshotName::from_str(text).map_err(|error| error.to_string());
        Ok(Plan { base: name(&self.base)?, deltas: self.deltas.iter().map(name).collect::<Result<_, _>>()? })
    }
}

/// Opens what is to be restored, and tells which snapshots of it. `raised` is what a restore adds to revisions.
///
/// # Errors
/// [`Error`].
pub(super) async fn choose(
    settings: &Settings,
    source: &StoreConfig,
    raised: u64,
) -> Result<(Store, Selection), Error> {
    let config = &settings.config;
    let source_root = open_all(source)?;
    let named = source.history.clone();
    if config.members.len() < 2 {
        let store = match named {
            Some(named) => source_root.history(&named),
            None => source_root.current().await?,
        };
        return Ok((store, Selection::Newest));
    }
    let own = config.store.as_ref();
    let records = own.map_or_else(|| Ok(source_root.clone()), open_all)?;
    let founding = Founding {
        key: key(&config.cluster_token, config.owner.as_ref().map_or("", |owner| &owner.id)),
        written: own.map(|own| records.history(history(own))),
        raised,
        source_root,
        named,
        records,
    };
    let (history, plan) = founding.agree().await?;
    Ok((founding.source_root.history(&history), Selection::Exactly(plan)))
}

/// The ids that etcd gives to founders: the first eight bytes of SHA-1 over their sorted peer URLs and the cluster token
/// (`computeMemberID` in `server/etcdserver/api/membership/member.go`). Members that are added later get others.
pub(super) fn member_ids(config: &Config) -> impl Iterator<Item = u64> {
    config.members.iter().map(|member| {
        let mut urls: Vec<&str> = member.peer_urls.iter().map(String::as_str).collect();
        urls.sort_unstable();
        urls.push(&config.cluster_token);
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, urls.concat().as_bytes());
        hash.as_ref().iter().take(8).fold(0, |id, byte| (id << 8) | u64::from(*byte))
    })
}

/// The name of a record: tokens and ids may hold any character.
fn key(token: &str, owner_id: &str) -> String {
    let mut hash = Sha256::default();
    for part in [token, owner_id] {
        hash.update(&part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// One etcd that is founded.
struct Founding {
    key: String,
    /// What a restore adds to revisions.
    raised: u64,
    /// What is restored from, with all histories.
    source_root: Store,
    /// The history to restore; the current one where it is `None`.
    named: Option<String>,
    /// Where the choice is recorded.
    records: Store,
    /// Where the restored etcd writes its snapshots.
    written: Option<Store>,
}

impl Founding {
    /// Gives the history and the snapshots of it that all founders restore. Whoever comes first chooses.
    async fn agree(&self) -> Result<(String, Plan), Error> {
        let choice = match self.recorded().await? {
            Some(choice) => choice,
            None => {
                self.record().await?;
                // Another founder may have been faster.
                self.recorded().await?.ok_or_else(|| self.bad("it is gone again"))?
            }
        };
        let plan = choice.plan().map_err(|why| self.bad(why))?;
        self.check(&choice, &plan).await?;
        Ok((choice.history, plan))
    }

    async fn recorded(&self) -> Result<Option<Choice>, Error> {
        let Some(bytes) = self.records.founding(&self.key).await? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| self.bad(error))
    }

    async fn record(&self) -> Result<(), Error> {
        let history = match &self.named {
            Some(named) => named.clone(),
            None => self.source_root.current_history().await?,
        };
        let plan = restore::plan(&self.source_root.history(&history)).await?;
        let choice = serde_json::to_vec(&Choice::of(history, &plan)).map_err(|error| self.bad(error))?;
        match self.records.record_founding(&self.key, choice.into()).await {
            Ok(()) | Err(store::Error::Exists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that the choice is still what a restore has to begin with.
    async fn check(&self, choice: &Choice, plan: &Plan) -> Result<(), Error> {
        // Revisions of the restored etcd lie behind all that the etcd before it can have written.
        let raised = plan.reaches().0.saturating_add_unsigned(self.raised);
        if let Some(written) = &self.written
            && let Some(newest) = newest(written).await?.filter(|name| name.last.0 >= raised)
        {
            return Err(Error::WrittenSince { newest });
        }
        let latest = choice.chosen.as_second().saturating_add(ON_ITS_WAY_SECONDS);
        let found = newest(&self.source_root.history(&choice.history)).await?;
        match found.filter(|name| name.last > plan.reaches() && name.created > latest) {
            Some(newest) => Err(Error::Outdated {
                base: plan.base.clone(),
                chosen: choice.chosen,
                newest,
                place: self.records.place_of_founding(&self.key),
            }),
            None => Ok(()),
        }
    }

    fn bad(&self, why: impl Display) -> Error {
        Error::BadRecord { place: self.records.place_of_founding(&self.key), why: why.to_string() }
    }
}

async fn newest(store: &Store) -> Result<Option<SnapshotName>, store::Error> {
    Ok(store.list_quickly().await?.into_iter().map(|one| one.name).max())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::snapshot::store::Environment;

    const FULL: &str = "Full-00000000-00000010-1700000000.gz";
    const DELTA: &str = "Incr-00000011-00000020-1700000001.gz";
    const LATE: &str = "Incr-00000021-00000030-1700000002.gz";

    fn put(dir: &Path, name: &str) {
        fs::create_dir_all(dir.join("v2")).expect("a directory");
        fs::write(dir.join("v2").join(name), b"x").expect("a file");
    }

    fn mk_founding(dir: &Path, token: &str) -> Founding {
        let url = format!("file://{}", dir.display());
        let store = Store::open(&url, &Environment::new()).expect("a store");
        Founding {
            key: key(token, "seed-1"),
            raised: 1_000_000_000,
            source_root: store.clone(),
            named: None,
            records: store.clone(),
            written: Some(store),
        }
    }

    async fn chosen(dir: &Path, token: &str) -> Result<Vec<String>, Error> {
        let (history, plan) = mk_founding(dir, token).agree().await?;
        assert_eq!(history, store::FIRST_HISTORY);
        Ok(std::iter::once(&plan.base).chain(&plan.deltas).map(ToString::to_string).collect())
    }

    /// As an agent does it: where another one writes the record at this moment, it looks again.
    async fn chosen_in_the_end(dir: &Path, token: &str) -> Result<Vec<String>, Error> {
        loop {
            match chosen(dir, token).await {
                Err(Error::Store(store::Error::Busy { .. })) => tokio::task::yield_now().await,
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn ids_of_founders_are_those_that_etcd_gives() {
        let config = |token: &str| -> Config {
            let text = format!(
                "
name: main
namespace: shoot--p--a
volumes: v
clusterToken: {token}
clusterState: new
members:
- {{name: m0, peerUrls: ['http://127.0.0.1:12026']}}
- {{name: m1, peerUrls: ['http://127.0.0.2:12026']}}
- {{name: m2, peerUrls: ['http://127.0.0.3:12026']}}
dataDir: /d
ports: {{client: 2379, peer: 2380, agent: 8080}}
"
            );
            serde_saphyr::from_str(&text).expect("a file")
        };
        // As etcd 3.6.16 logs them.
        let ids: Vec<u64> = member_ids(&config("4711/main-etcd")).collect();
        assert_eq!(ids, [0xf15f_21f2_da2b_9508, 0xf06b_4e07_0885_c776, 0x04c5_7e46_e066_b685]);
        assert!(member_ids(&config("4711/other-etcd")).all(|id| !ids.contains(&id)));
    }

    #[tokio::test]
    async fn founders_of_one_token_choose_the_same_whatever_arrives_between_them() {
        let dir = tempfile::tempdir().expect("a directory");
        put(dir.path(), FULL);
        put(dir.path(), DELTA);
        assert_eq!(chosen(dir.path(), "uid/a").await.expect("a plan"), [FULL, DELTA]);
        put(dir.path(), LATE);
        assert_eq!(chosen(dir.path(), "uid/a").await.expect("a plan"), [FULL, DELTA]);
        assert_eq!(chosen(dir.path(), "uid/b").await.expect("a plan"), [FULL, DELTA, LATE]);
        // Of founders at the same time, one chooses.
        let all = futures::future::join_all((0..8).map(|_| chosen_in_the_end(dir.path(), "uid/c"))).await;
        assert!(all.into_iter().all(|one| one.expect("a plan") == [FULL, DELTA, LATE]));
    }

    #[tokio::test]
    async fn nothing_is_restored_once_the_founders_have_written() {
        let dir = tempfile::tempdir().expect("a directory");
        put(dir.path(), FULL);
        chosen(dir.path(), "uid/a").await.expect("a plan");
        let theirs = "Full-00000000-1000000011-1700000003.gz";
        put(dir.path(), theirs);
        let refused = chosen(dir.path(), "uid/a").await.expect_err("another state");
        assert!(
            matches!(&refused, Error::WrittenSince { newest } if newest.to_string() == theirs),
            "{refused}"
        );
        assert!(refused.to_string().contains("another `volumes`"), "{refused}");
        assert_eq!(chosen(dir.path(), "uid/new").await.expect("a plan"), [theirs]);
    }

    #[tokio::test]
    async fn what_nobody_used_for_long_is_not_restored() {
        let dir = tempfile::tempdir().expect("a directory");
        put(dir.path(), FULL);
        chosen(dir.path(), "uid/a").await.expect("a plan");
        let now = Timestamp::now().as_second();
        put(dir.path(), &format!("Incr-00000011-00000020-{}.gz", now + 600));
        chosen(dir.path(), "uid/a").await.expect("a delta that was on its way");
        put(dir.path(), &format!("Incr-00000021-00000030-{}.gz", now + 7200));
        let refused = chosen(dir.path(), "uid/a").await.expect_err("an old state");
        let Error::Outdated { place, .. } = &refused else { panic!("{refused}") };
        assert!(refused.to_string().contains(&format!("remove {place}")), "{refused}");
        // An owner that is named again chooses again.
        let again = Founding { key: key("uid/a", "seed-3"), ..mk_founding(dir.path(), "uid/a") };
        assert_eq!(again.agree().await.expect("a plan").1.reaches().0, 30);
    }

    #[tokio::test]
    async fn what_is_no_record_is_not_taken_for_one() {
        let dir = tempfile::tempdir().expect("a directory");
        put(dir.path(), FULL);
        let key = key("t", "seed-1");
        fs::create_dir(dir.path().join("founding")).expect("a directory");
        let record = |history: &str, base: &str| {
            format!(
                r#"{{"chosen": "2026-01-01T00:00:00Z", "history": "{history}", "base": "{base}", "deltas": []}}"#
            )
        };
        for (text, says) in [
            (String::new(), "EOF"),
            ("{}".to_owned(), "missing field"),
            (record("first", "../x"), "../x"),
            (record("../../other", FULL), "no name of a history"),
            (record("", FULL), "no name of a history"),
        ] {
            fs::write(dir.path().join(format!("founding/{key}.json")), &text).expect("a file");
            let refused = chosen(dir.path(), "t").await.expect_err(&text);
            assert!(matches!(refused, Error::BadRecord { .. }), "{refused}");
            assert!(refused.to_string().contains(says), "{refused}");
        }
        fs::write(dir.path().join(format!("founding/{key}.json")), record("first", FULL)).expect("a file");
        assert_eq!(chosen(dir.path(), "t").await.expect("a record"), [FULL]);
    }
}
