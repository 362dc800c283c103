//! What is installed in a cluster: kinds, Pods, namespaces, and the time of the API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use parking_lot::Mutex;
use repot_apimachinery::value::{items_at, text_at};
use serde_json::Value;

use crate::objects::{Error, Kind, Listed, Objects};

/// Pods of a cluster.
pub const POD: Kind = Kind::new("", "v1", "Pod", "pods");
/// Labels of the Pods of Repot.
pub const POD_LABELS: &str =
    "app.kubernetes.io/name in (repot-apiserver,repot-controllers,repot-webhook,repot-certs)";
/// Groups of which it is asked what is served.
const GROUPS: [&str; 7] = [
    "migration.gardener.cloud/v1alpha1",
    "core.gardener.cloud/v1alpha1",
    "core.gardener.cloud/v1beta1",
    "druid.gardener.cloud/v1alpha1",
    "extensions.gardener.cloud/v1alpha1",
    "machine.sapcloud.io/v1alpha1",
    "metrics.k8s.io/v1beta1",
];
/// Most Pods that are looked at.
const MOST_PODS: usize = 500;
/// Longest answer about a group, in bytes.
const MOST_BYTES: usize = 4 << 20;

/// What is installed, as far as the user may see it.
pub struct Survey {
    /// The objects of the cluster.
    pub objects: Objects,
    /// URL of the API server, without user and password.
    pub server: String,
    /// Namespace that the user asks for; `None` means all.
    pub namespace: Option<String>,
    /// Whether the certificates of Secrets may be looked at.
    pub may_read_secrets: bool,
    /// Namespaces with Pods of Repot, and the one where it is installed as a rule.
    pub namespaces: BTreeSet<String>,
    /// Resources that are served, as `plural.group`.
    pub served: BTreeSet<String>,
    /// Groups of which it could not be asked what is served, each with the reason.
    pub unknown_groups: Vec<(String, String)>,
    /// Pods of Repot, or why they are not known.
    pub pods: Result<Vec<Value>, String>,
    /// What the API server says of its version.
    pub version: Value,
    /// How far the clock of the API server is ahead of this one; `None` where it does not tell.
    pub clock: Option<Clock>,
    /// How long the first answer took.
    pub latency: Duration,
    /// Resources of which there are more objects than are looked at, each with how many are.
    pub cut: Mutex<BTreeMap<&'static str, usize>>,
}

/// How far the clock of the API server is ahead of the one of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The least that it can be ahead, by when the request was sent.
    pub least: SignedDuration,
    /// The most that it can be ahead, by when the answer came.
    pub most: SignedDuration,
}

impl Clock {
    /// From the `Date` of an answer, in whole seconds, and when the request was sent and the answer came.
    #[must_use]
    pub fn new(date: Timestamp, sent: Timestamp, answered: Timestamp) -> Self {
        let second = SignedDuration::from_secs(1);
        Self { least: date.duration_since(answered), most: date.duration_since(sent) + second }
    }

    /// How far both clocks differ at least; zero where they may be equal.
    #[must_use]
    pub fn difference(&self) -> SignedDuration {
        if self.least.is_positive() {
            self.least
        } else if self.most.is_negative() {
            self.most
        } else {
            SignedDuration::ZERO
        }
    }
}

impl Survey {
    /// Asks what is installed. Nothing but an API server that does not answer is an error.
    ///
    /// # Errors
    /// That the API server does not answer, or does not know the user.
    pub async fn take(
        objects: Objects,
        server: String,
        repot_namespace: &str,
        namespace: Option<String>,
    ) -> Result<Self, Error> {
        let sent = Timestamp::now();
        let (headers, version) = objects.raw("/version", "application/json", MOST_BYTES).await?;
        let answered = Timestamp::now();
        let date = headers.get(http::header::DATE).and_then(|date| date.to_str().ok()).and_then(http_date);
        let mut survey = Self {
            objects,
            server,
            namespace,
            may_read_secrets: false,
            namespaces: BTreeSet::from([repot_namespace.to_owned()]),
            served: BTreeSet::new(),
            unknown_groups: Vec::new(),
            pods: Ok(Vec::new()),
            version,
            clock: date.map(|date| Clock::new(date, sent, answered)),
            latency: answered.duration_since(sent).unsigned_abs(),
            cut: Mutex::default(),
        };
        survey.ask_for_kinds().await;
        survey.find_pods(repot_namespace).await;
        Ok(survey)
    }

    /// As [`Objects::list`], and remembers where there are more objects than are looked at.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        params: ListParams,
        most: usize,
    ) -> Result<Listed, Error> {
        let found = self.objects.list(kind, namespace, params, most).await?;
        if found.is_cut {
            self.cut.lock().insert(kind.plural, most);
        }
        Ok(found)
    }

    async fn ask_for_kinds(&mut self) {
        let asked = GROUPS.map(async |group: &str| {
            let answer = self.objects.raw(&format!("/apis/{group}"), "application/json", MOST_BYTES).await;
            (group, answer.map(|(_, list)| list))
        });
        for (group, answer) in futures::future::join_all(asked).await {
            match answer {
                Ok(list) => {
                    let group = group.split('/').next().unwrap_or_default();
                    let names = items_at(&list, "/resources").iter().filter_map(|one| text_at(one, "/name"));
                    self.served.extend(names.map(|name| format!("{name}.{group}")));
                }
                Err(Error::NotServed { .. }) => {}
                Err(error) => self.unknown_groups.push((group.to_owned(), error.to_string())),
            }
        }
    }

    /// In all namespaces, or in the one of Repot where the user may look at no other.
    async fn find_pods(&mut self, repot_namespace: &str) {
        let params = || ListParams::default().labels(POD_LABELS);
        let mut found = self.list(&POD, None, params(), MOST_PODS).await;
        if matches!(found, Err(Error::Forbidden { .. })) {
            found = self.list(&POD, Some(repot_namespace), params(), MOST_PODS).await;
        }
        self.pods = found.map(|listed| listed.items).map_err(|error| error.to_string());
        let pods = self.pods.iter().flatten();
        let namespaces = pods.filter_map(|pod| text_at(pod, "/metadata/namespace")).map(str::to_owned);
        self.namespaces.extend(namespaces);
    }

    /// Whether a kind is served.
    #[must_use]
    pub fn serves(&self, kind: &Kind) -> bool {
        self.served.contains(&format!("{}.{}", kind.plural, kind.group))
    }

    /// The time of the API server, or of this machine where that is not known.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let ahead = self.clock.map(|clock| clock.difference()).unwrap_or_default();
        Timestamp::now().saturating_add(ahead).unwrap_or_else(|_| Timestamp::now())
    }
}

/// A time as the header `Date` has it.
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn dates_of_http_are_read() {
        assert_eq!(http_date("Sun, 29 Nov 2026 08:49:37 GMT"), Some(at("2026-11-29T08:49:37Z")));
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn clocks_differ_only_by_what_the_answer_cannot_explain() {
        let of = |date: &str, sent: &str, answered: &str| {
            let of = |second: &str| at(&format!("2026-11-29T08:00:{second}Z"));
            Clock::new(of(date), of(sent), of(answered)).difference().as_secs()
        };
        // A date has no fractions, and the answer may have been on its way for all of the time.
        assert_eq!(of("10", "10.9", "11.2"), 0);
        assert_eq!(of("10", "09.0", "15.0"), 0);
        assert_eq!(of("30", "10.0", "10.5"), 19);
        assert_eq!(of("10", "40.0", "40.5"), -29);
    }
}
