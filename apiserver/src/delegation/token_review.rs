//! Bearer tokens, judged by TokenReview.
//!
//! Anybody may send any number of tokens, so what they cost is bounded: reviews at once, in all and for one address; requests
//! that wait for one; what is remembered about good and about bad tokens, each apart. Tokens that were good not long ago are
//! reviewed apart from all others: whoever sends garbage does not hold up who has a good one.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use moka::future::Cache;

use super::{
    bounded::Bounded,
    retry::{counted, retrying},
};
use crate::{filters::user::User, metrics, shares::Flow, status::Status};

/// Entries of each cache.
const CACHE_ENTRIES: u64 = 8192;
/// A longer token is none: the API server's own are a few KiB.
const MAX_TOKEN_BYTES: usize = 32 << 10;
/// Reviews at once, and requests that wait for one; as many again for tokens that were good not long ago.
const REVIEWS: u64 = 32;
const WAITING: u64 = 256;
/// How long a token that was good is preferred.
const PREFERRED: Duration = Duration::from_secs(3600);

type Key = [u8; 32];

/// Asks who holds a token, and remembers the answer for a while under a keyed hash of the token.
#[derive(Clone)]
pub struct TokenReviewer {
    api: Api<TokenReview>,
    good: Cache<Key, User>,
    /// It also makes one review of all requests that show the same token at the same time.
    bad: Cache<Key, ()>,
    /// Tokens that were good not long ago.
    preferred: Cache<Key, ()>,
    reviews: Bounded,
    preferred_reviews: Bounded,
    hash_key: Key,
    audiences: Vec<String>,
}

/// Why a token is not known to be bad.
#[derive(Debug)]
enum NotBad {
    Good(User),
    /// Too many are asked about already.
    Busy(Status),
    /// Nobody can tell.
    Failed(kube::Error),
}

impl TokenReviewer {
    /// Asks through this client, and remembers answers for so long.
    #[must_use]
    pub fn new(client: Client, remember: Duration) -> Self {
        let mut hash_key = [0; 32];
        hash_key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        hash_key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        Self {
            api: Api::all(client),
            good: Cache::builder().max_capacity(CACHE_ENTRIES).time_to_live(remember).build(),
            bad: Cache::builder().max_capacity(CACHE_ENTRIES).time_to_live(remember).build(),
            preferred: Cache::builder().max_capacity(CACHE_ENTRIES).time_to_live(PREFERRED).build(),
            reviews: Bounded::new("tokenreviews", REVIEWS, WAITING),
            preferred_reviews: Bounded::new("tokenreviews", REVIEWS, WAITING),
            hash_key,
            audiences: Vec::new(),
        }
    }

    /// The same for tokens that are meant for one of these audiences; none given: for whom the kube-apiserver is.
    #[must_use]
    pub fn with_audiences(self, audiences: Vec<String>) -> Self {
        Self { audiences, ..self }
    }

    /// The holder of the token; `None`: the token is not good. `from`: whose connection shows it.
    ///
    /// # Errors
    /// 429 where too many tokens are reviewed already; 500 when nobody could tell; such answers are not remembered.
    pub async fn review(&self, token: &str, from: Option<IpAddr>) -> Result<Option<User>, Status> {
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        let key = *blake3::keyed_hash(&self.hash_key, token.as_bytes()).as_bytes();
        if let Some(user) = self.good.get(&key).await {
            return Ok(Some(user));
        }
        match self.bad.try_get_with(key, self.ask(key, token, from)).await {
            Ok(()) => Ok(None),
            Err(found) => match &*found {
                NotBad::Good(user) => Ok(Some(user.clone())),
                NotBad::Busy(status) => Err(status.clone()),
                NotBad::Failed(error) => {
                    tracing::error!(%error, "token review failed");
                    Err(Status::internal("failed to review the bearer token"))
                }
            },
        }
    }

    /// Asks. `Ok`: the token is bad.
    async fn ask(&self, key: Key, token: &str, from: Option<IpAddr>) -> Result<(), NotBad> {
        let reviews = match self.preferred.contains_key(&key) {
            true => &self.preferred_reviews,
            false => &self.reviews,
        };
        let address = from.map_or_else(String::new, |address| address.to_string());
        let _turn = reviews.turn(&Flow::User(address.into())).await.map_err(NotBad::Busy)?;
        let audiences = (!self.audiences.is_empty()).then(|| self.audiences.clone());
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        let params = PostParams::default();
        let (count, time) = (&metrics::TOKEN_REVIEWS, &metrics::TOKEN_REVIEW_SECONDS);
        let answer = retrying(|| counted(count, time, self.api.create(&params, &review))).await;
        match holder(answer.map_err(NotBad::Failed)?, &self.audiences) {
            Some(user) => {
                self.preferred.insert(key, ()).await;
                self.good.insert(key, user.clone()).await;
                Err(NotBad::Good(user))
            }
            None => {
                self.preferred.invalidate(&key).await;
                Ok(())
            }
        }
    }
}

fn holder(review: TokenReview, audiences: &[String]) -> Option<User> {
    let status = review.status.filter(|status| status.authenticated == Some(true))?;
    // Authenticators that know nothing of audiences answer without any: then the token is for the kube-apiserver.
    let meant_for = status.audiences.unwrap_or_default();
    if !audiences.is_empty() && !meant_for.iter().any(|audience| audiences.contains(audience)) {
        return None;
    }
    let user = status.user?;
    Some(User {
        name: user.username?,
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_else(BTreeMap::new),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::delegation::scripted::{Script, script, script_behind};
    use serde_json::json;
    use tokio::{sync::Semaphore, task::JoinHandle};

    #[tokio::test]
    async fn remembers_holders_and_bad_tokens_alike() {
        let (client, asked) = script(|_, body| {
            let good = body["spec"]["token"] == "good";
            (
                201,
                json!({"spec": {}, "status": {"authenticated": good, "user": {"username": "robot", "groups": ["g"]}}}),
            )
        });
        let reviewer = TokenReviewer::new(client, Duration::from_secs(10));
        for _ in 0..2 {
            let user = reviewer.review("good", None).await.expect("an answer").expect("a holder");
            assert_eq!((user.name.as_str(), user.groups), ("robot", vec!["g".to_owned()]));
            assert_eq!(reviewer.review("bad", None).await.expect("an answer"), None);
        }
        assert_eq!(asked.bodies().len(), 2);
    }

    #[tokio::test]
    async fn a_token_for_somebody_else_is_no_good() {
        let (client, asked) = script(|_, body| {
            let audience = body["spec"]["token"].clone();
            (
                201,
                json!({"spec": {}, "status": {"authenticated": true, "user": {"username": "robot"}, "audiences": [audience]}}),
            )
        });
        let reviewer =
            TokenReviewer::new(client, Duration::from_secs(10)).with_audiences(vec!["repot".into()]);
        assert!(reviewer.review("repot", None).await.expect("an answer").is_some());
        assert!(reviewer.review("vault", None).await.expect("an answer").is_none());
        assert_eq!(asked.bodies()[0]["spec"]["audiences"], json!(["repot"]));
    }

    #[tokio::test]
    async fn failures_are_not_remembered() {
        let (client, asked) = script(|_, _| (403, json!({"kind": "Status", "code": 403})));
        let reviewer = TokenReviewer::new(client, Duration::from_secs(10));
        for _ in 0..2 {
            assert!(reviewer.review("t", None).await.is_err());
        }
        assert_eq!(asked.bodies().len(), 2);
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some([10, 0, 0, last].into())
    }

    /// A reviewer whose kube-apiserver answers when it is told to, `good…` being good tokens.
    fn held_up() -> (TokenReviewer, Script, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        let (client, asked) = script_behind(gate.clone(), |_, body| {
            let token = body["spec"]["token"].as_str().unwrap_or_default();
            let user = json!({"username": token});
            (201, json!({"spec": {}, "status": {"authenticated": token.starts_with("good"), "user": user}}))
        });
        (TokenReviewer::new(client, Duration::from_secs(3600)), asked, gate)
    }

    type Reviewed = JoinHandle<Result<Option<User>, Status>>;

    /// Requests that show a token each.
    fn show(reviewer: &TokenReviewer, tokens: impl Iterator<Item = (String, u8)>) -> Vec<Reviewed> {
        let show = |(token, last): (String, u8)| {
            let reviewer = reviewer.clone();
            tokio::spawn(async move { reviewer.review(&token, address(last)).await })
        };
        tokens.map(show).collect()
    }

    #[tokio::test]
    async fn reviews_at_once_are_bounded_and_so_are_those_that_wait() {
        let (reviewer, asked, gate) = held_up();
        let half = ((REVIEWS / 2) as usize, (WAITING / 2) as usize);
        let shown = show(&reviewer, (0..2000).map(|number| (format!("garbage {number}"), 1)));
        // One address has a half of what there is.
        assert_eq!(asked.asked_when(2000 - half.0 - half.1, &shown).await, half.0);
        let waiting = shown.iter().filter(|shown| !shown.is_finished()).count();
        assert_eq!(waiting, half.0 + half.1);
        // Another address gets its turn at once.
        let other = show(&reviewer, std::iter::once(("good".to_owned(), 2)));
        assert_eq!(asked.asked_when(0, &other).await, half.0 + 1);
        gate.add_permits(10_000);
        let good = futures::future::join_all(other).await.remove(0);
        assert!(good.expect("a task").expect("an answer").is_some());
        for shown in shown {
            match shown.await.expect("a task") {
                Ok(holder) => assert_eq!(holder, None),
                Err(refused) => assert_eq!(refused.code(), http::StatusCode::TOO_MANY_REQUESTS),
            }
        }
    }

    #[tokio::test]
    async fn the_same_token_is_reviewed_once_however_many_show_it() {
        let (reviewer, asked, gate) = held_up();
        gate.add_permits(10_000);
        for token in ["good", "garbage"] {
            let all = (0..100).map(|_| reviewer.review(token, address(1)));
            for answer in futures::future::join_all(all).await {
                assert_eq!(answer.expect("an answer").is_some(), token == "good");
            }
        }
        assert_eq!(asked.bodies().len(), 2);
    }

    #[tokio::test]
    async fn garbage_neither_displaces_good_tokens_nor_holds_up_those_that_were_good() {
        let (reviewer, asked, gate) = held_up();
        gate.add_permits(Semaphore::MAX_PERMITS / 2);
        assert!(reviewer.review("good", address(1)).await.expect("an answer").is_some());
        for number in 0..2 * CACHE_ENTRIES {
            let answer = reviewer.review(&format!("garbage {number}"), address(9)).await;
            assert!(answer.expect("an answer").is_none());
        }
        let before = asked.bodies().len();
        assert!(reviewer.review("good", address(1)).await.expect("an answer").is_some());
        assert_eq!(asked.bodies().len(), before, "it was reviewed again");
        reviewer.bad.run_pending_tasks().await;
        assert!(reviewer.bad.entry_count() <= CACHE_ENTRIES, "{}", reviewer.bad.entry_count());

        // It is forgotten, and garbage from everywhere waits.
        gate.forget_permits(Semaphore::MAX_PERMITS);
        reviewer.good.invalidate_all();
        let garbage = (0..=u8::MAX).map(|last| (format!("more garbage {last}"), last));
        let garbage = show(&reviewer, garbage);
        let running = asked.asked_when(0, &garbage).await;
        assert_eq!((running - before) as u64, REVIEWS);
        let good = show(&reviewer, std::iter::once(("good".to_owned(), 1)));
        assert_eq!(asked.asked_when(0, &good).await, running + 1, "it waits behind garbage");
        gate.add_permits(10_000);
        let good = futures::future::join_all(good).await.remove(0);
        assert!(good.expect("a task").expect("an answer").is_some());
    }

    #[tokio::test]
    async fn what_is_too_long_for_a_token_is_not_reviewed() {
        let (reviewer, asked, _gate) = held_up();
        let long = "x".repeat(MAX_TOKEN_BYTES + 1);
        assert!(reviewer.review(&long, None).await.expect("an answer").is_none());
        assert!(asked.bodies().is_empty());
    }
}
