//! Metrics of the migrations of a garden. They are computed when somebody asks, from the cache of the controller that leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use kube::{ResourceExt, runtime::reflector::Store};
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use repot_plan::{
    migration::{Side, Step},
    named::Named,
};
use serde_json::Value;

use super::api::ControlPlaneMigration;
use crate::metrics::Metrics;

/// Buckets of a whole migration, in seconds: from a small Shoot to one that waits for a day.
const MIGRATION_SECONDS: &[f64] =
    &[30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 14_400.0, 86_400.0];
/// Buckets of an outage, in seconds.
const OUTAGE_SECONDS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
/// Modes of a migration.
const MODES: [&str; 3] = ["Classic", "Forced", "Live"];
/// Phases in which a migration has ended.
const ENDS: [&str; 4] = ["Succeeded", "RolledBack", "Failed", "Cancelled"];

/// What is counted of the migrations of a garden.
pub struct MigrationGauges {
    all: Store<ControlPlaneMigration>,
    started: Timestamp,
    counts: IntGaugeVec,
    step_age: IntGaugeVec,
    away: IntGaugeVec,
    usual: IntGaugeVec,
    suspected: IntGauge,
    durations: HistogramVec,
    outages: HistogramVec,
    retries: IntCounterVec,
    /// Held as long as somebody asks: who asks at the same time must not see gauges that are half set.
    seen: Mutex<Seen>,
}

/// What was seen when somebody asked last.
#[derive(Default)]
struct Seen {
    /// UIDs of those that had not ended.
    open: BTreeSet<String>,
    /// UIDs of those whose end was counted.
    counted: BTreeSet<String>,
    /// `spec.retry` by UID.
    retries: BTreeMap<String, i64>,
}

impl MigrationGauges {
    /// Adds them to the metrics of the process. Ends before `now` are not counted.
    ///
    /// # Errors
    /// When they are there already.
    pub fn add(
        all: Store<ControlPlaneMigration>,
        now: Timestamp,
        metrics: &Metrics,
    ) -> prometheus::Result<()> {
        metrics.add(Self::new(all, now)?)
    }

    fn new(all: Store<ControlPlaneMigration>, started: Timestamp) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str, labels: &[&str]| IntGaugeVec::new(Opts::new(name, help), labels);
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
        };
        Ok(Self {
            all,
            started,
            counts: gauge(
                "repot_migrations",
                "ControlPlaneMigrations that are stored, by mode and phase.",
                &["mode", "phase"],
            )?,
            step_age: gauge(
                "repot_migration_step_age_seconds",
                "How long the step runs that was started first among migrations that have not ended.",
                &["mode", "side", "step"],
            )?,
            away: gauge(
                "repot_migration_api_away_seconds",
                "The longest time that an API is away at the moment, by the records of its migration.",
                &["mode"],
            )?,
            usual: gauge(
                "repot_migration_api_outage_usual_seconds",
                "Median of the outages of stored migrations that have succeeded.",
                &["mode"],
            )?,
            suspected: IntGauge::new(
                "repot_migrations_two_owners_suspected",
                "Forced migrations whose source has written after the destination became the owner.",
            )?,
            durations: histogram(
                "repot_migration_duration_seconds",
                "Time from the creation of a migration to its end.",
                MIGRATION_SECONDS,
                &["mode", "phase"],
            )?,
            outages: histogram(
                "repot_migration_api_outage_seconds",
                "Time that clients could not reach the API, of migrations that have ended.",
                OUTAGE_SECONDS,
                &["mode"],
            )?,
            retries: IntCounterVec::new(
                Opts::new(
                    "repot_migration_retries_total",
                    "Requests to try a migration again that has failed.",
                ),
                &["mode"],
            )?,
            seen: Mutex::default(),
        }
        .with_zeros())
    }

    /// Counts from zero. Otherwise the first end would be no increase for a query.
    fn with_zeros(self) -> Self {
        for mode in MODES {
            for phase in ENDS {
                self.durations.with_label_values(&[mode, phase]);
            }
            self.outages.with_label_values(&[mode]);
            self.retries.with_label_values(&[mode]);
        }
        self
    }

    fn update(&self, seen: &mut Seen, now: Timestamp) {
        for gauge in [&self.counts, &self.step_age, &self.away, &self.usual] {
            gauge.reset();
        }
        let all = self.all.state();
        let mut outages: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        let mut suspected = 0;
        for one in &all {
            let (mode, phase) = (mode(one), phase(one));
            self.counts.with_label_values(&[mode, phase]).inc();
            suspected += i64::from(has_two_owners(one));
            if ENDS.contains(&phase) {
                outages.entry(mode).or_default().extend(outage_seconds(one).filter(|_| phase == "Succeeded"));
            } else {
                self.update_open(one, now);
            }
        }
        for (mode, mut all) in outages {
            all.sort_unstable();
            if let Some(median) = all.get(all.len().saturating_sub(1) / 2) {
                self.usual.with_label_values(&[mode]).set(*median);
            }
        }
        self.suspected.set(suspected);
        self.count_ends(seen, &all);
    }

    fn update_open(&self, one: &ControlPlaneMigration, now: Timestamp) {
        let mode = mode(one);
        let since = |time: Timestamp| now.duration_since(time).as_secs().max(0);
        for side in Side::ALL {
            let steps = one.status.get(side.name()).and_then(|part| part["steps"].as_array());
            for record in steps.into_iter().flatten().filter(|record| record["state"] == "Running") {
                // Only names of this program become labels.
                let step = record["name"].as_str().and_then(Step::parse);
                let (Some(step), Some(started)) = (step, time(&record["startTime"])) else { continue };
                let gauge = self.step_age.with_label_values(&[mode, side.name(), step.name()]);
                gauge.set(gauge.get().max(since(started)));
            }
        }
        let outage = one.status.get("apiOutage").filter(|outage| outage["to"].is_null());
        if let Some(from) = outage.and_then(|outage| time(&outage["from"])) {
            let gauge = self.away.with_label_values(&[mode]);
            gauge.set(gauge.get().max(since(from)));
        }
    }

    fn count_ends(&self, seen: &mut Seen, all: &[Arc<ControlPlaneMigration>]) {
        let uids: BTreeSet<String> = all.iter().filter_map(|one| one.uid()).collect();
        seen.open.retain(|uid| uids.contains(uid));
        seen.counted.retain(|uid| uids.contains(uid));
        seen.retries.retain(|uid, _| uids.contains(uid));
        for one in all {
            let (Some(uid), mode) = (one.uid(), mode(one)) else { continue };
            let retry = one.spec.retry.unwrap_or_default();
            let before = seen.retries.insert(uid.clone(), retry).unwrap_or(retry);
            self.retries.with_label_values(&[mode]).inc_by(u64::try_from(retry - before).unwrap_or_default());
            let phase = phase(one);
            if !ENDS.contains(&phase) {
                seen.counted.remove(&uid);
                seen.open.insert(uid);
                continue;
            }
            let is_new = one.creation_timestamp().is_some_and(|created| created.0 >= self.started);
            if (seen.open.remove(&uid) || is_new) && seen.counted.insert(uid) {
                self.count_end(one, phase);
            }
        }
    }

    fn count_end(&self, one: &ControlPlaneMigration, phase: &str) {
        let mode = mode(one);
        let ended = Side::ALL.iter().filter_map(|side| time(&one.status.get(side.name())?["completionTime"]));
        let created = one.creation_timestamp().map(|created| created.0);
        if let Some((created, ended)) = created.zip(ended.max()) {
            let seconds = ended.duration_since(created).as_secs_f64().max(0.0);
            self.durations.with_label_values(&[mode, phase]).observe(seconds);
        }
        if let Some(seconds) = outage_seconds(one).and_then(|seconds| u32::try_from(seconds).ok()) {
            self.outages.with_label_values(&[mode]).observe(f64::from(seconds));
        }
    }

    fn collectors(&self) -> [&dyn Collector; 8] {
        [
            &self.counts,
            &self.step_age,
            &self.away,
            &self.usual,
            &self.suspected,
            &self.durations,
            &self.outages,
            &self.retries,
        ]
    }
}

impl Collector for MigrationGauges {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.update(&mut seen, Timestamp::now());
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}

fn mode(one: &ControlPlaneMigration) -> &'static str {
    MODES.into_iter().find(|mode| *mode == one.spec.mode).unwrap_or("Classic")
}

fn phase(one: &ControlPlaneMigration) -> &'static str {
    let known = ["Running", "Succeeded", "RollingBack", "RolledBack", "Failed", "Cancelled"];
    let phase = one.status.get("phase").and_then(Value::as_str);
    known.into_iter().find(|known| Some(*known) == phase).unwrap_or("Pending")
}

fn outage_seconds(one: &ControlPlaneMigration) -> Option<i64> {
    one.status.get("apiOutage")?["seconds"].as_i64()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// The source of a forced migration is taken for dead. Where its controller writes after the destination took the owner record, or where
/// its last snapshot has what the destination does not, both may have served.
fn has_two_owners(one: &ControlPlaneMigration) -> bool {
    if mode(one) != "Forced" {
        return false;
    }
    let late = one.status.get("lateSnapshot").is_some_and(|late| late["state"] == "Reported");
    let steps = one.status.get(Side::Destination.name()).and_then(|part| part["steps"].as_array());
    let taken = steps.into_iter().flatten().find(|step| step["name"] == Step::OwnerRecordTaken.name());
    let taken = taken.and_then(|step| time(&step["startTime"]));
    let wrote = one.status.get(Side::Source.name()).and_then(|part| time(&part["observedTime"]));
    let is_open = !ENDS.contains(&phase(one));
    late || (is_open && taken.zip(wrote).is_some_and(|(taken, wrote)| wrote > taken))
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher::Event};
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    fn migration(name: &str, mode: &str, status: Value) -> ControlPlaneMigration {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "p", "uid": name, "creationTimestamp": at(10).to_string()},
            "spec": {"shootRef": {"name": "s"}, "sourceSeed": "a", "destinationSeed": "b", "mode": mode},
            "status": status,
        }))
        .expect("a migration")
    }

    impl MigrationGauges {
        fn look(&self, now: Timestamp) {
            self.update(&mut self.seen.lock().expect("a lock"), now);
        }
    }

    fn sample(gauges: &MigrationGauges, name: &str, labels: &[&str]) -> Option<i64> {
        let collectors = gauges.collectors();
        let families = collectors.into_iter().flat_map(Collector::collect);
        let family = families.into_iter().find(|family| family.name() == name)?;
        let found = family.get_metric().iter().find(|metric| {
            let values: Vec<&str> =
                metric.get_label().iter().map(prometheus::proto::LabelPair::value).collect();
            labels.iter().all(|label| values.contains(label))
        })?;
        #[expect(clippy::cast_possible_truncation, reason = "whole numbers of a test")]
        Some(found.get_gauge().get_value() as i64)
    }

    #[test]
    fn migrations_that_run_say_how_long_their_steps_and_outages_last() {
        let (reader, mut writer) = reflector::store();
        let gauges = MigrationGauges::new(reader, at(0)).expect("gauges");
        let step = |name: &str, from: i64| json!({"name": name, "state": "Running", "startTime": at(from).to_string()});
        let running = json!({
            "phase": "Running", "apiOutage": {"from": at(90).to_string()},
            "destination": {"steps": [step("EtcdServes", 40), step("<invented>", 1)]},
        });
        writer.apply_watcher_event(&Event::Apply(migration("one", "Classic", running)));
        let older = json!({"phase": "Running", "destination": {"steps": [step("EtcdServes", 20)]}});
        writer.apply_watcher_event(&Event::Apply(migration("two", "Classic", older)));
        let done = json!({"phase": "Succeeded", "apiOutage": {"from": at(1).to_string(), "to": at(8).to_string(), "seconds": 7}});
        writer.apply_watcher_event(&Event::Apply(migration("three", "Classic", done)));
        gauges.look(at(100));
        assert_eq!(sample(&gauges, "repot_migrations", &["Classic", "Running"]), Some(2));
        assert_eq!(sample(&gauges, "repot_migration_step_age_seconds", &["EtcdServes"]), Some(80));
        assert_eq!(sample(&gauges, "repot_migration_step_age_seconds", &["<invented>"]), None);
        assert_eq!(sample(&gauges, "repot_migration_api_away_seconds", &["Classic"]), Some(10));
        assert_eq!(sample(&gauges, "repot_migration_api_outage_usual_seconds", &["Classic"]), Some(7));
    }

    #[test]
    fn end_is_counted_once_where_it_came_while_this_process_looked() {
        let (reader, mut writer) = reflector::store();
        let gauges = MigrationGauges::new(reader, at(50)).expect("gauges");
        let over = |name: &str| {
            let part = json!({"completionTime": at(70).to_string()});
            migration(name, "Live", json!({"phase": "Succeeded", "garden": part}))
        };
        let count = || gauges.durations.with_label_values(&["Live", "Succeeded"]).get_sample_count();
        // It was created and had ended before the process began.
        writer.apply_watcher_event(&Event::Apply(over("old")));
        gauges.look(at(80));
        assert_eq!(count(), 0);
        writer.apply_watcher_event(&Event::Apply(migration("new", "Live", json!({"phase": "Running"}))));
        gauges.look(at(81));
        writer.apply_watcher_event(&Event::Apply(over("new")));
        gauges.look(at(82));
        gauges.look(at(83));
        assert_eq!(count(), 1);
        assert_eq!(gauges.durations.with_label_values(&["Live", "Succeeded"]).get_sample_sum(), 60.0);
    }

    #[test]
    fn source_that_writes_after_the_destination_became_the_owner_is_suspected() {
        let taken = json!({"steps": [{"name": "OwnerRecordTaken", "state": "Succeeded", "startTime": at(40).to_string()}]});
        let of = |mode: &str, wrote: i64| {
            let source = json!({"observedTime": at(wrote).to_string()});
            migration("m", mode, json!({"phase": "Running", "destination": taken, "source": source}))
        };
        assert!(has_two_owners(&of("Forced", 41)));
        assert!(!has_two_owners(&of("Forced", 39)));
        assert!(!has_two_owners(&of("Classic", 41)));
        let late = json!({"phase": "Succeeded", "lateSnapshot": {"state": "Reported"}});
        assert!(has_two_owners(&migration("m", "Forced", late)));
    }
}
