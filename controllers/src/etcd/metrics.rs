//! Metrics of all Etcds of the operator: how many are healthy, and how many are not.
//!
//! They are computed from the watch caches of the operator whenever Prometheus asks, so an Etcd that is deleted is not counted any
//! more. A process in which no operator runs, such as one that waits for the Lease, has none of them. Names of Etcds are no labels, since users of the cluster choose them: `kubectl get etcds -A` shows which ones are meant.

use std::{collections::HashMap, sync::Arc};

use kube::{ResourceExt, runtime::reflector::Store};
use parking_lot::Mutex;
use prometheus::{
    IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use repot_etcd_core::{agent::http::AgentStatus, members::quorum};

use super::{api::Etcd, status::Status};
use crate::metrics::Metrics;

/// Types of conditions of an Etcd, as `report` and `findings` write them.
const CONDITIONS: [&str; 10] = [
    "Ready",
    "AllMembersReady",
    "AllMembersUpdated",
    "ScaleOperationComplete",
    "BootstrappedWithExistingCluster",
    "SourceSnapshotsCopied",
    "DataVolumesReady",
    "ClusterIDMismatch",
    "BackupReady",
    "EtcdVersionSupported",
];
const STATUSES: [&str; 3] = ["True", "False", "Unknown"];
const MEMBER_STATUSES: [&str; 2] = ["Ready", "NotReady"];
/// What agents say that follows from the owner record.
const VERDICTS: [&str; 5] = ["Serve", "Stop", "CutOff", "FinalSnapshot", "StayDown"];

/// How an etcd stands to the loss of its quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quorum {
    /// It has a quorum, and keeps it if one more member fails; or it has one member, which is ready.
    Healthy,
    /// It has a quorum, and loses it if one more member fails.
    AtRisk,
    /// It has none.
    Lost,
}

impl Quorum {
    const ALL: [Self; 3] = [Self::Healthy, Self::AtRisk, Self::Lost];

    fn label(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::AtRisk => "at_risk",
            Self::Lost => "lost",
        }
    }

    /// Of the members in a status; `None` where no member is to run.
    fn of(status: &Status) -> Option<Self> {
        let members = status.members.len();
        let ready = status.members.iter().filter(|member| member.status == "Ready").count();
        let needed = quorum(members);
        Some(match (members, ready) {
            (0, _) => return None,
            (_, ready) if ready < needed => Self::Lost,
            (members, ready) if ready == needed && ready < members => Self::AtRisk,
            _ => Self::Healthy,
        })
    }
}

/// Metrics of the Etcds that an operator looks after. Clones share them.
#[derive(Clone, Debug)]
pub struct EtcdMetrics(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    gauges: Gauges,
    sources: Mutex<Sources>,
}

#[derive(Debug)]
struct Gauges {
    conditions: IntGaugeVec,
    quorum: IntGaugeVec,
    members: IntGaugeVec,
    ownership: IntGaugeVec,
}

#[derive(Debug, Default)]
struct Sources {
    /// The watch caches of the operator, one for each of its namespaces or one for all.
    stores: Vec<Store<Etcd>>,
    /// Verdicts of agents on ownership at their last answer, by the UID of the Etcd.
    verdicts: HashMap<String, Vec<String>>,
}

impl EtcdMetrics {
    /// Adds them to the metrics of the process.
    ///
    /// # Errors
    /// When they are there already.
    pub fn new(all: &Metrics) -> prometheus::Result<Self> {
        let gauges =
            |name: &str, help: &str, labels: &[&str]| IntGaugeVec::new(Opts::new(name, help), labels);
        let gauges = Gauges {
            conditions: gauges(
                "repot_etcd_conditions",
                "Etcds by type and status of a condition.",
                &["type", "status"],
            )?,
            quorum: gauges(
                "repot_etcd_quorum",
                "Etcds with members, by the state of their quorum.",
                &["state"],
            )?,
            members: gauges("repot_etcd_members", "Members of Etcds by status.", &["status"])?,
            ownership: gauges(
                "repot_etcd_ownership",
                "Members with an owner check, by what follows from the owner record.",
                &["verdict"],
            )?,
        };
        let metrics = Self(Arc::new(Shared { gauges, sources: Mutex::default() }));
        all.add(metrics.clone())?;
        Ok(metrics)
    }

    /// Counts the Etcds of this watch cache from now on.
    pub(super) fn add_store(&self, store: Store<Etcd>) {
        self.0.sources.lock().stores.push(store);
    }

    /// Remembers what agents say about ownership.
    pub(super) fn record_verdicts(&self, etcd: &Etcd, said: &[Option<AgentStatus>]) {
        let owners = said.iter().flatten().filter_map(|said| said.owner.as_ref());
        let verdicts: Vec<String> = owners.map(|owner| owner.verdict.clone()).collect();
        if let Some(uid) = etcd.uid() {
            self.0.sources.lock().verdicts.insert(uid, verdicts);
        }
    }
}

impl Gauges {
    fn all(&self) -> [&IntGaugeVec; 4] {
        [&self.conditions, &self.quorum, &self.members, &self.ownership]
    }

    /// Sets every sample to 0: one that is missing is no sign that all is well.
    fn clear(&self) {
        for kind in CONDITIONS {
            STATUSES.iter().for_each(|status| self.conditions.with_label_values(&[kind, *status]).set(0));
        }
        Quorum::ALL.iter().for_each(|state| self.quorum.with_label_values(&[state.label()]).set(0));
        MEMBER_STATUSES.iter().for_each(|status| self.members.with_label_values(&[*status]).set(0));
        VERDICTS.iter().for_each(|verdict| self.ownership.with_label_values(&[*verdict]).set(0));
    }

    fn count(&self, status: &Status) {
        for condition in &status.conditions {
            let (kind, value) = (condition.kind.as_str(), condition.status.as_str());
            if CONDITIONS.contains(&kind) && STATUSES.contains(&value) {
                self.conditions.with_label_values(&[kind, value]).inc();
            }
        }
        if let Some(state) = Quorum::of(status) {
            self.quorum.with_label_values(&[state.label()]).inc();
        }
        for member in &status.members {
            let label = if member.status == "Ready" { "Ready" } else { "NotReady" };
            self.members.with_label_values(&[label]).inc();
        }
    }
}

impl Collector for EtcdMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.0.gauges.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Shared { gauges, sources } = &*self.0;
        // Held until the end: two scrapes at a time must not count into the same gauges.
        let mut sources = sources.lock();
        if sources.stores.is_empty() {
            return Vec::new();
        }
        gauges.clear();
        let etcds: Vec<Arc<Etcd>> = sources.stores.iter().flat_map(Store::state).collect();
        etcds.iter().filter_map(|etcd| etcd.status.as_ref()).for_each(|status| gauges.count(status));
        let stopped = |etcd: &Etcd| etcd.status.as_ref().is_none_or(|status| status.members.is_empty());
        let running = etcds.iter().filter(|etcd| !stopped(etcd)).filter_map(|etcd| etcd.uid());
        let mut verdicts = std::mem::take(&mut sources.verdicts);
        for (uid, verdicts) in running.filter_map(|uid| verdicts.remove_entry(&uid)) {
            for verdict in verdicts.iter().filter(|verdict| VERDICTS.contains(&verdict.as_str())) {
                gauges.ownership.with_label_values(&[verdict.as_str()]).inc();
            }
            sources.verdicts.insert(uid, verdicts);
        }
        gauges.all().into_iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher};
    use repot_etcd_core::agent::http::OwnerStatus;
    use serde_json::json;

    use super::*;

    fn mk_etcd(name: &str, ready: &[bool], backup: &str) -> Etcd {
        let members: Vec<_> = ready
            .iter()
            .enumerate()
            .map(|(at, ready)| {
                json!({"name": format!("m{at}"), "status": if *ready { "Ready" } else { "NotReady" }})
            })
            .collect();
        let conditions =
            json!([{"type": "BackupReady", "status": backup}, {"type": "Ready", "status": "True"}]);
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name},
            "status": {"members": members, "conditions": conditions},
        }))
        .expect("an Etcd")
    }

    fn said(verdict: &str) -> Option<AgentStatus> {
        let owner = OwnerStatus { verdict: verdict.to_owned(), ..OwnerStatus::default() };
        Some(AgentStatus { owner: Some(owner), ..AgentStatus::default() })
    }

    #[test]
    fn quorum_is_at_risk_when_one_more_failure_loses_it() {
        for (ready, expected) in [
            (&[][..], None),
            (&[true], Some(Quorum::Healthy)),
            (&[false], Some(Quorum::Lost)),
            (&[true, true, true], Some(Quorum::Healthy)),
            (&[true, true, false], Some(Quorum::AtRisk)),
            (&[true, false, false], Some(Quorum::Lost)),
            (&[true, true, true, true, false], Some(Quorum::Healthy)),
        ] {
            let etcd = mk_etcd("e", ready, "True");
            assert_eq!(Quorum::of(&etcd.status.expect("a status")), expected, "{ready:?}");
        }
    }

    #[test]
    fn etcds_are_counted_until_they_are_deleted() {
        let all = Metrics::new().expect("metrics");
        let metrics = EtcdMetrics::new(&all).expect("metrics");
        let (store, mut writer) = reflector::store();
        assert!(all.render().expect("metrics").is_empty(), "Etcds are counted before the operator runs");
        metrics.add_store(store);
        let (one, two) = (mk_etcd("one", &[true, true, false], "False"), mk_etcd("two", &[true], "True"));
        for etcd in [&one, &two] {
            writer.apply_watcher_event(&watcher::Event::Apply(etcd.clone()));
            metrics.record_verdicts(etcd, &[said("Serve"), said("StayDown"), None]);
        }
        let has = |line: &str| {
            let text = String::from_utf8(all.render().expect("metrics")).expect("UTF-8");
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        };
        has(r#"repot_etcd_conditions{status="False",type="BackupReady"} 1"#);
        has(r#"repot_etcd_conditions{status="True",type="Ready"} 2"#);
        has(r#"repot_etcd_quorum{state="at_risk"} 1"#);
        has(r#"repot_etcd_members{status="Ready"} 3"#);
        has(r#"repot_etcd_ownership{verdict="StayDown"} 2"#);
        writer.apply_watcher_event(&watcher::Event::Delete(one));
        has(r#"repot_etcd_conditions{status="False",type="BackupReady"} 0"#);
        has(r#"repot_etcd_quorum{state="at_risk"} 0"#);
        has(r#"repot_etcd_ownership{verdict="StayDown"} 1"#);
    }
}
