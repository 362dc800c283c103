//! Reads and transactions.

use std::ops::Range;

use bytes::Bytes;
use etcd_client::{
    Compare as PbCompare, CompareOp, GetOptions, GetResponse, KvClient, PutOptions, Txn as PbTxn, TxnOp,
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::{
    super::{Compare, Error, KeyValue, Op, Outcome, Page, RangeRequest, Result, Revision, Txn},
    Etcd,
    error::{Failure, Kind},
    link::{Answer, number, revision},
};

/// Gets that are under way at once for [`get_many`](Etcd::several).
const PARALLEL: usize = 16;
/// Keys that are fetched at once where nothing is known of their values, and never more than.
const FIRST_KEYS: usize = 16;
const MOST_KEYS: usize = 1000;
/// Keys without values that are fetched at once. etcd reads the values all the same and leaves them out of its answer
/// (`server/storage/mvcc/kvstore_txn.go`, `rangeKeys`): this many chunks of 256 KiB are 64 MiB of its memory.
const MOST_BARE_KEYS: usize = 256;
/// How often a page is begun, where compaction overtakes it.
const PAGE_ATTEMPTS: usize = 10;
/// Bytes of values to aim for in one answer.
const AIM_BYTES: usize = 4 << 20;

impl Etcd {
    /// The newest revision of the cluster.
    pub(super) async fn newest(&self) -> Result<Revision> {
        Ok(revision(self.head().await?.header()))
    }

    /// The id of the cluster, as etcd prints it.
    pub(super) async fn cluster_id(&self) -> Result<String> {
        let answer = self.head().await?;
        let id = answer.header().map(etcd_client::ResponseHeader::cluster_id);
        id.map(|id| format!("{id:x}")).ok_or_else(|| Error::Corrupt("an answer without its header".into()))
    }

    /// An answer of which only the header matters (linearizable).
    async fn head(&self) -> Result<GetResponse> {
        let key = self.prefix.range(&(Bytes::new()..Bytes::new())).0;
        self.fetch(key, GetOptions::new().with_count_only())
            .await
            .map_err(|failure| failure.into_error(Kind::Read))
    }

    /// The number of keys in a range. etcd answers from its index of keys and reads no value.
    pub(super) async fn counted(&self, keys: &Range<Bytes>, at: Option<Revision>) -> Result<u64> {
        let (start, end) = self.prefix.range(keys);
        match self.fetch(start, options(at).with_range(end).with_count_only()).await {
            Ok(answer) => Ok(u64::try_from(answer.count()).unwrap_or(0)),
            Err(failure) => Err(self.read_error(failure, at).await),
        }
    }

    /// One key.
    pub(super) async fn one(&self, key: Bytes, at: Option<Revision>) -> Result<Option<KeyValue>> {
        let answer = match self.fetch(self.prefix.add(&key), options(at)).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.read_error(failure, at).await),
        };
        Ok(answer.0.kvs.into_iter().next().map(|found| self.prefix.strip(found)))
    }

    /// Several keys at one revision. Single gets, not one transaction: a transaction would have to be bounded by the
    /// size of values that nobody knows yet.
    pub(super) async fn several(&self, keys: Vec<Bytes>, at: Revision) -> Result<Vec<Option<KeyValue>>> {
        stream::iter(keys).map(|key| self.one(key, Some(at)).boxed()).buffered(PARALLEL).try_collect().await
    }

    pub(super) async fn fetch(&self, key: Vec<u8>, options: GetOptions) -> Result<GetResponse, Failure> {
        let get = |mut kv: KvClient| {
            let (key, options) = (key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        };
        self.link.call(Kind::Read, get).await
    }

    /// A page of keys.
    pub(super) async fn page(&self, request: &RangeRequest) -> Result<Page> {
        let mut attempt = 1;
        loop {
            match self.page_once(request).await {
                Ok(page) => return Ok(page),
                // Nobody asked for the revision that the page began with, so it may as well begin again.
                Err(Failure::Compacted) if request.at.is_none() && attempt < PAGE_ATTEMPTS => attempt += 1,
                Err(failure) => return Err(self.read_error(failure, request.at).await),
            }
        }
    }

    /// A page in as many fetches as its bytes ask for: etcd bounds an answer by keys alone. All are made at the revision
    /// of the first.
    async fn page_once(&self, request: &RangeRequest) -> Result<Page, Failure> {
        let (mut start, end) = self.prefix.range(&request.keys);
        let mut page = Page { kvs: Vec::new(), revision: request.at.unwrap_or_default(), more: false };
        let (mut at, mut bytes, mut count) = (request.at, 0, first_count(request));
        loop {
            let asked = if request.limit == 0 { count } else { count.min(request.limit - page.kvs.len()) };
            let mut asking = options(at).with_range(end.clone()).with_limit(asked as i64);
            if request.keys_only {
                asking = asking.with_keys_only();
            }
            let answer = match self.fetch(start.clone(), asking).await {
                Ok(answer) => answer,
                Err(Failure::AnswerTooLarge) if asked > 1 => {
                    count = asked / 4 + 1;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if at.is_none() {
                page.revision = revision(answer.header());
                at = Some(page.revision);
            }
            let (more, fetched) = (answer.more(), answer.0.kvs);
            let next = fetched.last().map(|last| [&last.key[..], &[0]].concat());
            for found in fetched {
                if is_full(request, page.kvs.len(), bytes) {
                    page.more = true;
                    return Ok(page);
                }
                bytes += found.value.len();
                page.kvs.push(self.prefix.strip(found));
            }
            page.more = more && is_full(request, page.kvs.len(), bytes);
            match next.filter(|_| more && !page.more) {
                Some(next) => start = next,
                None => return Ok(page),
            }
            count = next_count(request, page.kvs.len(), bytes, asked);
        }
    }

    /// Commits or does not.
    pub(super) async fn commit(&self, txn: &Txn) -> Result<Outcome> {
        let lease = if txn.ops.iter().any(|op| matches!(op, Op::PutEphemeral(..))) {
            Some(self.lease.id(&self.link).await?)
        } else {
            None
        };
        let compares: Vec<_> = txn.compares.iter().map(|compare| self.compare(compare)).collect();
        let ops: Vec<_> = txn.ops.iter().map(|op| self.op(op, lease)).collect();
        let request = PbTxn::new().when(compares).and_then(ops);
        let make = |mut kv: KvClient| {
            let request = request.clone();
            async move { kv.txn(request).await }
        };
        let kind = if makes_what_was_absent(txn) { Kind::Once } else { Kind::Write };
        match self.link.answer(kind, make).await {
            Ok(Answer { value, .. }) if value.succeeded() => Ok(Outcome::Committed(revision(value.header()))),
            Ok(Answer { refused: None, .. }) => Ok(Outcome::Failed),
            // Or it is the first attempt that keeps the second from happening.
            Ok(Answer { refused: Some(why), .. }) => Err(Error::Unknown(format!(
                "a comparison does not hold, after an attempt of which etcd said: {why}"
            ))),
            Err(Failure::LeaseGone) if lease.is_none() => {
                Err(Error::Unknown("etcd speaks of a lease that was not named".into()))
            }
            Err(failure) => {
                if let (Failure::LeaseGone, Some(lease)) = (&failure, lease) {
                    self.lease.forget(lease);
                }
                Err(match failure.into_error(kind) {
                    Error::TooLarge { limit, .. } => Error::TooLarge { size: txn.size(), limit },
                    error => error,
                })
            }
        }
    }

    fn compare(&self, compare: &Compare) -> PbCompare {
        match compare {
            Compare::ModifiedAt(key, revision) => {
                PbCompare::mod_revision(self.prefix.add(key), CompareOp::Equal, number(*revision))
            }
            Compare::Exists(key) => PbCompare::version(self.prefix.add(key), CompareOp::Greater, 0),
        }
    }

    fn op(&self, op: &Op, lease: Option<i64>) -> TxnOp {
        match op {
            Op::Put(key, value) => TxnOp::put(self.prefix.add(key), &value[..], None),
            Op::PutEphemeral(key, value) => {
                let options = PutOptions::new().with_lease(lease.unwrap_or_default());
                TxnOp::put(self.prefix.add(key), &value[..], Some(options))
            }
            Op::Delete(key) => TxnOp::delete(self.prefix.add(key), None),
        }
    }

    /// The error of a read at a revision, which names the revisions that can be read.
    pub(super) async fn read_error(&self, failure: Failure, at: Option<Revision>) -> Error {
        let error = match (failure, at) {
            (Failure::Compacted, Some(requested)) => {
                self.oldest_kept().await.map(|oldest| Error::Compacted { requested, oldest })
            }
            (Failure::Future, Some(requested)) => {
                self.newest().await.map(|newest| Error::Future { requested, newest })
            }
            (failure, _) => Ok(failure.into_error(Kind::Read)),
        };
        error.unwrap_or_else(|error| error)
    }
}

/// Whether a transaction could happen twice if it was sent twice: it expects no key where it puts one, and that may be so again
/// once the key is removed. What it puts under a lease has a name that is never used again, or is looked at before use.
fn makes_what_was_absent(txn: &Txn) -> bool {
    let absent = |key| txn.compares.contains(&Compare::ModifiedAt(key, Revision(0)));
    txn.ops.iter().any(|op| matches!(op, Op::Put(key, _) if absent(key.clone())))
}

/// Nothing was ever written at revision 1, the first of a cluster, so it shows what "before anything" shows; etcd would
/// take zero for "now".
fn options(at: Option<Revision>) -> GetOptions {
    match at {
        Some(at) => GetOptions::new().with_revision(number(at).max(1)),
        None => GetOptions::new(),
    }
}

fn is_full(request: &RangeRequest, keys: usize, bytes: usize) -> bool {
    (request.limit != 0 && keys >= request.limit) || (request.max_bytes != 0 && bytes >= request.max_bytes)
}

fn first_count(request: &RangeRequest) -> usize {
    if request.keys_only { MOST_BARE_KEYS } else { FIRST_KEYS }
}

/// How many keys to ask for next, from what the keys so far weighed; at most four times as many as before, since a few
/// small values say little about the next.
fn next_count(request: &RangeRequest, keys: usize, bytes: usize, asked: usize) -> usize {
    if request.keys_only {
        return MOST_BARE_KEYS;
    }
    let room = match request.max_bytes {
        0 => AIM_BYTES,
        most => (most - bytes).min(AIM_BYTES),
    };
    (room / (bytes / keys + 1) + 1).min(asked * 4).clamp(1, MOST_KEYS)
}
