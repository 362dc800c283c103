//! Bearer tokens, judged by TokenReview.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};

use super::retry::{counted, retrying};
use crate::{filters::user::User, metrics, status::Status};

const CACHE_ENTRIES: u64 = 8192;

/// Asks who holds a token, and remembers the answer for a while under a keyed hash of the token.
#[derive(Clone)]
pub struct TokenReviewer {
    api: Api<TokenReview>,
    cache: moka::future::Cache<[u8; 32], Option<User>>,
    hash_key: [u8; 32],
    audiences: Vec<String>,
}

impl TokenReviewer {
    /// Asks through this client, and remembers answers for so long.
    #[must_use]
    pub fn new(client: Client, remember: Duration) -> Self {
        let cache = moka::future::Cache::builder().max_capacity(CACHE_ENTRIES).time_to_live(remember).build();
        let mut hash_key = [0; 32];
        hash_key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        hash_key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        Self { api: Api::all(client), cache, hash_key, audiences: Vec::new() }
    }

    /// The same for tokens that are meant for one of these audiences; none given: for whom the kube-apiserver is.
    #[must_use]
    pub fn with_audiences(self, audiences: Vec<String>) -> Self {
        Self { audiences, ..self }
    }

    /// The holder of the token; `None`: the token is not good.
    ///
    /// # Errors
    /// 500 when nobody could tell; such answers are not remembered.
    pub async fn review(&self, token: &str) -> Result<Option<User>, Status> {
        let key = blake3::keyed_hash(&self.hash_key, token.as_bytes());
        let ask = async {
            let audiences = (!self.audiences.is_empty()).then(|| self.audiences.clone());
            let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences };
            let review = TokenReview { spec, ..TokenReview::default() };
            let params = PostParams::default();
            let (count, time) = (&metrics::TOKEN_REVIEWS, &metrics::TOKEN_REVIEW_SECONDS);
            let answer = retrying(|| counted(count, time, self.api.create(&params, &review))).await?;
            Ok(holder(answer, &self.audiences))
        };
        self.cache.try_get_with(*key.as_bytes(), ask).await.map_err(|error: Arc<kube::Error>| {
            tracing::error!(%error, "token review failed");
            Status::internal("failed to review the bearer token")
        })
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
    use super::*;
    use crate::delegation::scripted::script;
    use serde_json::json;

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
            let user = reviewer.review("good").await.expect("an answer").expect("a holder");
            assert_eq!((user.name.as_str(), user.groups), ("robot", vec!["g".to_owned()]));
            assert_eq!(reviewer.review("bad").await.expect("an answer"), None);
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
        assert!(reviewer.review("repot").await.expect("an answer").is_some());
        assert!(reviewer.review("vault").await.expect("an answer").is_none());
        assert_eq!(asked.bodies()[0]["spec"]["audiences"], json!(["repot"]));
    }

    #[tokio::test]
    async fn failures_are_not_remembered() {
        let (client, asked) = script(|_, _| (403, json!({"kind": "Status", "code": 403})));
        let reviewer = TokenReviewer::new(client, Duration::from_secs(10));
        for _ in 0..2 {
            assert!(reviewer.review("t").await.is_err());
        }
        assert_eq!(asked.bodies().len(), 2);
    }
}
