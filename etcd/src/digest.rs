//! What an etcd holds, in one line that can be compared: how many keys, and a hash over them.
//!
//! **What is counted.** Every key that hangs on no lease, at one revision: its name, value, revision of creation, revision of its
//! last change, and number of changes. A snapshot keeps all of these, and a restore does too, whether or not it raises the
//! revision: what is raised is the counter for changes to come. So the digest of an etcd is that of any etcd restored from it.
//! Which lease a key hangs on is left out together with the key, since leases end by themselves, also while nobody writes.
//!
//! Keys are read in pages at that revision. When it is compacted meanwhile, which takes a writer, the count begins anew.

use std::{fmt::Write as _, time::Duration};

use etcd_client::{Client, GetOptions, KeyValue};
use repot_etcd_core::{digest::Digest, snapshot::Revision};
use tokio::time::timeout;

use crate::snapshot::codec::Sha256;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How much a page should hold, and how many keys the first one has.
const PAGE_BYTES: usize = 4 << 20;
const FIRST_PAGE: i64 = 64;
const MOST_KEYS: i64 = 20_000;
/// How often the revision may be compacted before we are through.
const ATTEMPTS: u32 = 5;
/// What etcd says of a revision that is gone.
const COMPACTED: &str = "required revision has been compacted";

/// Why there is no digest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// etcd did not answer as it should.
    #[error("failed to {task}")]
    Etcd {
        /// What was asked of it.
        task: &'static str,
        /// Why.
        #[source]
        source: etcd_client::Error,
    },
    /// It did not answer in time, as without a quorum.
    #[error("failed to {task}: no answer within {ANSWER:?}")]
    Slow {
        /// What was asked of it.
        task: &'static str,
    },
    /// It compacts faster than it can be read.
    #[error("each of {ATTEMPTS} revisions was compacted before all keys at it were read")]
    Compacted,
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How far an etcd is and how many keys it has, those with leases included, by one linearizable read. The hash is empty: it
/// equals that of nothing.
///
/// # Errors
/// [`Error::Etcd`], [`Error::Slow`].
pub async fn glance(client: &Client) -> Result<Digest> {
    let task = "ask for the revision";
    let options = GetOptions::new().with_all_keys().with_count_only();
    let asked = timeout(ANSWER, client.kv_client().get("", Some(options))).await;
    let answer = asked.map_err(|_| Error::Slow { task })?.map_err(|source| Error::Etcd { task, source })?;
    let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
    let keys = u64::try_from(answer.count()).unwrap_or_default();
    Ok(Digest { revision: Revision(revision), keys, hash: String::new() })
}

/// The digest of an etcd at the revision that it has now.
///
/// # Errors
/// [`Error`].
pub async fn digest(client: &Client) -> Result<Digest> {
    for _ in 0..ATTEMPTS {
        let revision = glance(client).await?.revision;
        if let Some(digest) = digest_at(client, revision).await? {
            return Ok(digest);
        }
    }
    Err(Error::Compacted)
}

/// Nothing where the revision is compacted.
async fn digest_at(client: &Client, revision: Revision) -> Result<Option<Digest>> {
    let task = "read all keys";
    let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
    let (mut sum, mut next, mut limit) = (Sum::default(), vec![0], FIRST_PAGE);
    loop {
        let options = GetOptions::new().with_from_key().with_revision(revision.0).with_limit(limit);
        let asked = timeout(ANSWER, kv.get(next, Some(options))).await;
        let page = match asked.map_err(|_| Error::Slow { task })? {
            Ok(page) => page,
            Err(error) if error.to_string().contains(COMPACTED) => return Ok(None),
            Err(source) => return Err(Error::Etcd { task, source }),
        };
        page.kvs().iter().for_each(|pair| sum.add(pair));
        let Some(last) = page.kvs().last().filter(|_| page.more()) else {
            return Ok(Some(sum.finish(revision)));
        };
        // The least key behind it.
        next = [last.key(), &[0]].concat();
        limit = page_after(page.kvs());
    }
}

/// How many keys such as these make up a page.
fn page_after(page: &[KeyValue]) -> i64 {
    let bytes: usize = page.iter().map(|pair| pair.key().len() + pair.value().len() + 1).sum();
    let keys = page.len().saturating_mul(PAGE_BYTES) / bytes.max(1);
    i64::try_from(keys).unwrap_or(MOST_KEYS).clamp(1, MOST_KEYS)
}

#[derive(Default)]
struct Sum {
    keys: u64,
    hash: Sha256,
}

impl Sum {
    fn add(&mut self, pair: &KeyValue) {
        if pair.lease() != 0 {
            return;
        }
        self.keys += 1;
        // With its length before it, no part can pass for a piece of its neighbour.
        for part in [pair.key(), pair.value()] {
            self.hash.update(&(part.len() as u64).to_be_bytes());
            self.hash.update(part);
        }
        for number in [pair.create_revision(), pair.mod_revision(), pair.version()] {
            self.hash.update(&number.to_be_bytes());
        }
    }

    fn finish(self, revision: Revision) -> Digest {
        let hash = self.hash.finish().iter().fold(String::from("sha256:"), |mut text, byte| {
            // Writing to a text does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Digest { revision, keys: self.keys, hash }
    }
}
