//! Bearer tokens, judged by TokenReview.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};

use super::retry::retrying;
use crate::{filters::user::User, status::Status};

const CACHE_ENTRIES: u64 = 8192;

/// Asks who holds a token, and remembers the answer for a while under a keyed hash of the token.
#[derive(Clone)]
pub struct TokenReviewer {
    api: Api<TokenReview>,
    cache: moka::future::Cache<[u8; 32], Option<User>>,
    hash_key: [u8; 32],
}

impl TokenReviewer {
    /// Asks through this client, and remembers answers for so long.
    #[must_use]
    pub fn new(client: Client, remember: Duration) -> Self {
        let cache = moka::future::Cache::builder().max_capacity(CACHE_ENTRIES).time_to_live(remember).build();
        let mut hash_key = [0; 32];
        hash_key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        hash_key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        Self { api: Api::all(client), cache, hash_key }
    }

    /// The holder of the token; `None`: the token is not good.
    ///
    /// # Errors
    /// 500 when nobody could tell; such answers are not remembered.
    pub async fn review(&self, token: &str) -> Result<Option<User>, Status> {
        let key = blake3::keyed_hash(&self.hash_key, token.as_bytes());
        let ask = async {
            let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
            let review = TokenReview { spec, ..TokenReview::default() };
            let params = PostParams::default();
            let answer = retrying(|| self.api.create(&params, &review)).await?;
            Ok(holder(answer))
        };
        self.cache.try_get_with(*key.as_bytes(), ask).await.map_err(|error: Arc<kube::Error>| {
            tracing::error!(%error, "token review failed");
            Status::internal("failed to review the bearer token")
        })
    }
}

fn holder(review: TokenReview) -> Option<User> {
    let status = review.status.filter(|status| status.authenticated == Some(true))?;
    let user = status.user?;
    Some(User {
        name: user.username?,
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_else(BTreeMap::new),
    })
}
