//! Permissions, judged by SubjectAccessReview.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use super::retry::retrying;
use crate::{
    filters::{
        request_info::{RequestInfo, Target},
        user::User,
    },
    status::Status,
};

const CACHE_ENTRIES: u64 = 8192;
/// Attributes that a client makes longer than this are not remembered: they would fill the cache at its will.
const MAX_CACHED_BYTES: usize = 10_000;

type Question = (User, &'static str, String, Option<Target>);

/// Asks what a user may do, and remembers the answer for a while.
#[derive(Clone)]
pub struct AccessReviewer {
    api: Api<SubjectAccessReview>,
    cache: moka::future::Cache<Question, Option<String>>,
}

impl AccessReviewer {
    /// Asks through this client, and remembers answers for so long.
    #[must_use]
    pub fn new(client: Client, remember: Duration) -> Self {
        let cache = moka::future::Cache::builder().max_capacity(CACHE_ENTRIES).time_to_live(remember).build();
        Self { api: Api::all(client), cache }
    }

    /// `None`: allowed; otherwise why not, possibly empty.
    ///
    /// # Errors
    /// 500 when nobody could tell: no answer is not a permission.
    pub async fn review(&self, user: &User, info: &RequestInfo) -> Result<Option<String>, Status> {
        let path = if info.target.is_some() { String::new() } else { info.path.clone() };
        let question: Question = (user.clone(), info.verb, path, info.target.clone());
        let cacheable = size(&question) < MAX_CACHED_BYTES;
        let ask = self.ask(&question);
        let answer = if cacheable {
            self.cache.try_get_with_by_ref(&question, ask).await
        } else {
            ask.await.map_err(Arc::new)
        };
        answer.map_err(|error| {
            tracing::error!(%error, "access review failed");
            Status::internal("failed to review access")
        })
    }

    async fn ask(&self, question: &Question) -> kube::Result<Option<String>> {
        let review = SubjectAccessReview { spec: spec(question), ..SubjectAccessReview::default() };
        let params = PostParams::default();
        let answer = retrying(|| self.api.create(&params, &review)).await?;
        let status = answer.status.unwrap_or_default();
        let allowed = status.allowed && status.denied != Some(true);
        Ok((!allowed).then(|| status.reason.unwrap_or_default()))
    }
}

fn spec((user, verb, path, target): &Question) -> SubjectAccessReviewSpec {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let resource_attributes = target.as_ref().map(|target| ResourceAttributes {
        group: some(&target.group),
        version: some(&target.version),
        resource: some(&target.resource),
        subresource: some(&target.subresource),
        namespace: some(&target.namespace),
        name: some(&target.name),
        verb: some(verb),
        ..ResourceAttributes::default()
    });
    let non_resource_attributes = match target {
        Some(_) => None,
        None => Some(NonResourceAttributes { path: some(path), verb: some(verb) }),
    };
    SubjectAccessReviewSpec {
        user: some(&user.name),
        uid: some(&user.uid),
        groups: Some(user.groups.clone()),
        extra: Some(user.extra.clone()),
        resource_attributes,
        non_resource_attributes,
    }
}

fn size((user, _, path, target): &Question) -> usize {
    let target = target.as_ref().map_or(0, |t| {
        [&t.group, &t.version, &t.resource, &t.subresource, &t.namespace, &t.name]
            .iter()
            .map(|s| s.len())
            .sum()
    });
    let extra: usize = user
        .extra
        .iter()
        .map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>())
        .sum();
    user.name.len() + user.groups.iter().map(String::len).sum::<usize>() + extra + path.len() + target
}
