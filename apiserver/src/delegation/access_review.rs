//! Permissions, judged by SubjectAccessReview.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes,
    SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use moka::{Expiry, future::Cache};

use super::{
    bounded::Bounded,
    retry::{counted, retrying},
};
use crate::{
    filters::{
        request_info::{RequestInfo, Target},
        user::User,
    },
    metrics,
    shares::Flow,
    status::Status,
};

const CACHE_ENTRIES: u64 = 8192;
/// The same for requests without credentials, which would fill the cache of all others.
const UNAUTHENTICATED_CACHE_ENTRIES: u64 = 512;
/// Reviews at once, and requests that wait for one. Watches count too, which no other limit does.
const REVIEWS: u64 = 64;
const WAITING: u64 = 512;
/// Attributes that a client makes longer than this are not remembered: they would fill the cache at its will.
const MAX_CACHED_BYTES: usize = 10_000;

/// An answer about permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the user may.
    pub allowed: bool,
    /// Why the user may or may not, in words; empty where no reason was given.
    pub reason: String,
}

/// How long answers are remembered.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// How long an answer that allows is remembered.
    pub allowed: Duration,
    /// How long an answer that does not allow is remembered.
    pub denied: Duration,
}

impl Expiry<Question, Verdict> for Memory {
    fn expire_after_create(
        &self,
        _: &Question,
        verdict: &Verdict,
        _: std::time::Instant,
    ) -> Option<Duration> {
        Some(if verdict.allowed { self.allowed } else { self.denied })
    }
}

/// Everything that the answer hangs on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    user: User,
    verb: &'static str,
    /// Empty for resources.
    path: String,
    target: Option<Target>,
    selectors: [String; 2],
}

/// Asks what a user may do, and remembers the answer for a while.
#[derive(Clone)]
pub struct AccessReviewer {
    api: Api<SubjectAccessReview>,
    cache: Cache<Question, Verdict>,
    unauthenticated: Cache<Question, Verdict>,
    reviews: Bounded,
}

/// Why there is no verdict.
#[derive(Debug)]
enum Undecided {
    /// Too many are asked for already.
    Busy(Status),
    /// Nobody can tell.
    Failed(kube::Error),
}

impl AccessReviewer {
    /// Asks through this client, and remembers answers for so long.
    #[must_use]
    pub fn new(client: Client, memory: Memory) -> Self {
        let cache = |entries| Cache::builder().max_capacity(entries).expire_after(memory).build();
        Self {
            api: Api::all(client),
            cache: cache(CACHE_ENTRIES),
            unauthenticated: cache(UNAUTHENTICATED_CACHE_ENTRIES),
            reviews: Bounded::new("subjectaccessreviews", REVIEWS, WAITING),
        }
    }

    /// Whether the user may make the request.
    ///
    /// # Errors
    /// 429 where too many reviews are under way; 500 when nobody could tell: no answer is not a permission.
    pub async fn review(&self, user: &User, info: &RequestInfo) -> Result<Verdict, Status> {
        let question = Question {
            user: user.clone(),
            verb: info.verb,
            path: if info.target.is_some() { String::new() } else { info.path.clone() },
            target: info.target.clone(),
            selectors: [info.field_selector.clone(), info.label_selector.clone()],
        };
        let flow = user.flow();
        let cache = match flow {
            Flow::Unauthenticated => &self.unauthenticated,
            Flow::User(_) => &self.cache,
        };
        let answer = if question.size() < MAX_CACHED_BYTES {
            cache.try_get_with_by_ref(&question, self.ask(&question, &flow)).await
        } else {
            self.ask(&question, &flow).await.map_err(Arc::new)
        };
        answer.map_err(|why| match &*why {
            Undecided::Busy(status) => status.clone(),
            Undecided::Failed(error) => {
                tracing::error!(%error, "access review failed");
                Status::internal("failed to review access")
            }
        })
    }

    async fn ask(&self, question: &Question, flow: &Flow) -> Result<Verdict, Undecided> {
        let _turn = self.reviews.turn(flow).await.map_err(Undecided::Busy)?;
        let review = SubjectAccessReview { spec: question.spec(), ..SubjectAccessReview::default() };
        let params = PostParams::default();
        let (count, time) = (&metrics::ACCESS_REVIEWS, &metrics::ACCESS_REVIEW_SECONDS);
        let answer = retrying(|| counted(count, time, self.api.create(&params, &review))).await;
        let status = answer.map_err(Undecided::Failed)?.status.unwrap_or_default();
        let allowed = status.allowed && status.denied != Some(true);
        Ok(Verdict { allowed, reason: status.reason.unwrap_or_default() })
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl Question {
    fn spec(&self) -> SubjectAccessReviewSpec {
        let resource_attributes = self.target.as_ref().map(|target| ResourceAttributes {
            group: some(&target.group),
            version: some(&target.version),
            resource: some(&target.resource),
            subresource: some(&target.subresource),
            namespace: some(&target.namespace),
            name: some(&target.name),
            verb: some(self.verb),
            // As text: kube-apiserver reads it as it reads those of its own requests, and older ones pass over it.
            field_selector: some(&self.selectors[0])
                .map(|raw| FieldSelectorAttributes { raw_selector: Some(raw), requirements: None }),
            label_selector: some(&self.selectors[1])
                .map(|raw| LabelSelectorAttributes { raw_selector: Some(raw), requirements: None }),
        });
        let non_resource_attributes = match self.target {
            Some(_) => None,
            None => Some(NonResourceAttributes { path: some(&self.path), verb: some(self.verb) }),
        };
        SubjectAccessReviewSpec {
            user: some(&self.user.name),
            uid: some(&self.user.uid),
            groups: Some(self.user.groups.clone()),
            extra: Some(self.user.extra.clone()),
            resource_attributes,
            non_resource_attributes,
        }
    }

    /// Bytes of what clients can choose.
    fn size(&self) -> usize {
        let target = self.target.as_ref().map_or(0, |t| {
            let texts = [&t.group, &t.version, &t.resource, &t.subresource, &t.namespace, &t.name];
            texts.iter().map(|text| text.len()).sum()
        });
        let extra = self.user.extra.iter();
        let extra: usize =
            extra.map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>()).sum();
        let groups: usize = self.user.groups.iter().map(String::len).sum();
        let selectors: usize = self.selectors.iter().map(String::len).sum();
        self.user.name.len() + groups + extra + self.path.len() + target + selectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        call::Call,
        delegation::scripted::{Script, script, script_behind},
    };
    use axum::body::Body;
    use http::Method;
    use serde_json::{Value, json};
    use tokio::sync::Semaphore;

    fn info(method: Method, uri: &str) -> RequestInfo {
        let request =
            http::Request::builder().method(method).uri(uri).body(Body::empty()).expect("a request");
        Call::begin(request, Arc::default()).map_err(|(status, _)| status).expect("a call").info.clone()
    }

    fn reviewer(answer: fn(&Value) -> (u16, Value), denied: Duration) -> (AccessReviewer, Script) {
        let (client, script) = script(move |_, body| answer(body));
        (AccessReviewer::new(client, Memory { allowed: Duration::from_secs(10), denied }), script)
    }

    fn user() -> User {
        User { name: "alice".into(), uid: "42".into(), groups: vec!["g".into()], ..User::default() }
    }

    fn allow(_: &Value) -> (u16, Value) {
        (201, json!({"spec": {}, "status": {"allowed": true, "reason": "a role"}}))
    }

    fn refuse(_: &Value) -> (u16, Value) {
        (201, json!({"spec": {}, "status": {"allowed": false}}))
    }

    #[tokio::test]
    async fn asks_for_user_verb_and_resource_and_for_the_selectors() {
        let (reviewer, script) = reviewer(allow, Duration::ZERO);
        let uri = "/apis/g/v1/namespaces/n/rs?watch=1&labelSelector=a%3Db&fieldSelector=metadata.name%3Dx";
        let verdict = reviewer.review(&user(), &info(Method::GET, uri)).await.expect("an answer");
        assert_eq!(verdict, Verdict { allowed: true, reason: "a role".into() });
        reviewer.review(&user(), &info(Method::GET, "/apis/g/v1")).await.expect("an answer");
        let asked = script.bodies();
        assert_eq!(asked[0]["spec"]["user"], "alice");
        assert_eq!((&asked[0]["spec"]["uid"], &asked[0]["spec"]["groups"]), (&json!("42"), &json!(["g"])));
        assert_eq!(
            asked[0]["spec"]["resourceAttributes"],
            json!({
                "group": "g", "version": "v1", "resource": "rs", "namespace": "n", "name": "x", "verb": "watch",
                "fieldSelector": {"rawSelector": "metadata.name=x"}, "labelSelector": {"rawSelector": "a=b"},
            })
        );
        assert_eq!(asked[1]["spec"]["nonResourceAttributes"], json!({"path": "/apis/g/v1", "verb": "get"}));
    }

    #[tokio::test]
    async fn remembers_permissions_and_refusals_each_as_long_as_was_asked_for() {
        let get = info(Method::GET, "/apis/g/v1/rs");
        for (answer, expected) in [(allow as fn(&Value) -> _, 1), (refuse, 2)] {
            // Refusals are forgotten at once here.
            let (reviewer, script) = reviewer(answer, Duration::ZERO);
            for _ in 0..2 {
                reviewer.review(&user(), &get).await.expect("an answer");
            }
            assert_eq!(script.bodies().len(), expected);
        }
        let (reviewer, script) = reviewer(refuse, Duration::from_secs(10));
        for _ in 0..2 {
            assert!(!reviewer.review(&user(), &get).await.expect("an answer").allowed);
        }
        assert_eq!(script.bodies().len(), 1);
    }

    #[tokio::test]
    async fn long_questions_are_not_remembered() {
        let (reviewer, script) = reviewer(allow, Duration::ZERO);
        let long = info(Method::GET, &format!("/apis/g/v1/rs/{}", "x".repeat(MAX_CACHED_BYTES)));
        for _ in 0..2 {
            reviewer.review(&user(), &long).await.expect("an answer");
        }
        assert_eq!(script.bodies().len(), 2);
    }

    #[tokio::test]
    async fn no_answer_is_not_a_permission() {
        let (reviewer, script) = reviewer(|_| (403, json!({"kind": "Status", "code": 403})), Duration::ZERO);
        let get = info(Method::GET, "/apis/g/v1/rs");
        for _ in 0..2 {
            let status = reviewer.review(&user(), &get).await.expect_err("nobody knows");
            assert_eq!(status.code(), http::StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert_eq!(script.bodies().len(), 2, "a failure was remembered");
    }

    #[tokio::test]
    async fn neither_anonymous_requests_nor_one_user_use_up_the_reviews() {
        let gate = Arc::new(Semaphore::new(0));
        let (client, script) = script_behind(gate.clone(), |_, body| allow(body));
        let kept = Duration::from_secs(10);
        let reviewer = AccessReviewer::new(client, Memory { allowed: kept, denied: kept });
        let watch = |number| info(Method::GET, &format!("/apis/g/v1/r{number}?watch=1"));
        let ask = |user: &User, numbers: std::ops::Range<u32>| {
            let ask = |number| {
                let (reviewer, user, watch) = (reviewer.clone(), user.clone(), watch(number));
                tokio::spawn(async move { reviewer.review(&user, &watch).await })
            };
            numbers.map(ask).collect::<Vec<_>>()
        };
        let (nobody, mallory) = (User::anonymous(), User { name: "mallory".into(), ..user() });
        let mut asked = 0;
        for (who, most, waiting) in
            [(&nobody, REVIEWS / 20, WAITING / 20), (&mallory, REVIEWS / 2, WAITING / 2)]
        {
            let most = (most + waiting) as usize;
            let asks = ask(who, 0..2000);
            let now = script.asked_when(2000 - most, &asks).await;
            assert!((1..=most - waiting as usize).contains(&(now - asked)), "{}: {now}", who.name);
            assert!(asks.iter().any(|ask| !ask.is_finished()), "nobody waits");
            asked = now;
        }
        let alice = ask(&user(), 0..1);
        assert_eq!(script.asked_when(0, &alice).await, asked + 1, "it waits behind others");
        gate.add_permits(10_000);
        let answer = futures::future::join_all(alice).await.remove(0);
        assert!(answer.expect("a task").expect("an answer").allowed);
    }
}
