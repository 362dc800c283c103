//! Metrics of an agent. etcd has its own, at its client URL.

use prometheus::{Encoder, IntGaugeVec, Opts, Registry, TextEncoder};

use super::{
    backups::State,
    report::{Phase, Report},
    supervisor::Seen,
};
use crate::snapshot::SnapshotName;

/// What is told at the moment, as Prometheus reads it.
///
/// # Errors
/// Where a name is not a name of a metric.
pub(super) fn render(report: &Report, seen: Seen, backups: &State) -> Result<String, prometheus::Error> {
    let registry = Registry::new();
    let family = |name: &str, help: &str, labels: &[&str]| -> Result<IntGaugeVec, prometheus::Error> {
        let gauge = IntGaugeVec::new(Opts::new(format!("repot_etcd_agent_{name}"), help), labels)?;
        registry.register(Box::new(gauge.clone()))?;
        Ok(gauge)
    };
    let one = |name: &str, help: &str, value: i64| -> Result<(), prometheus::Error> {
        family(name, help, &[])?.with_label_values::<&str>(&[]).set(value);
        Ok(())
    };
    let phase = family("phase", "What the member is doing: 1 for the phase that it is in.", &["phase"])?;
    for each in Phase::ALL {
        phase.with_label_values(&[format!("{each:?}").as_str()]).set(i64::from(report.phase == each));
    }
    one("etcd_running", "Whether etcd runs.", i64::from(seen.pid.is_some()))?;
    one(
        "etcd_failures_total",
        "How often etcd has ended by itself or could not be started.",
        count(report.failures),
    )?;
    one(
        "needs_rejoin",
        "Whether the member has to be removed and added again.",
        i64::from(report.needs_rejoin),
    )?;
    one("backup_leader", "Whether this agent is the one that takes snapshots.", i64::from(backups.leads))?;
    one(
        "backup_failing",
        "Whether no snapshot can be taken at the moment.",
        i64::from(backups.failing.is_some()),
    )?;
    one(
        "snapshot_failures_total",
        "How many attempts to take snapshots have failed.",
        count(backups.failed),
    )?;
    one(
        "snapshots_deleted_total",
        "How many snapshots were deleted because they are not kept.",
        count(backups.deleted),
    )?;
    let taken = family("snapshots_total", "How many snapshots this agent has taken.", &["kind"])?;
    let revision = family("snapshot_revision", "The last revision in the newest snapshot.", &["kind"])?;
    let time = family("snapshot_timestamp_seconds", "When the newest snapshot was begun.", &["kind"])?;
    let kinds = [("Full", backups.taken.0, &backups.full), ("Incr", backups.taken.1, &backups.delta)];
    for (kind, number, newest) in kinds {
        taken.with_label_values(&[kind]).set(count(number));
        let newest: Option<&SnapshotName> = newest.as_ref();
        revision.with_label_values(&[kind]).set(newest.map_or(0, |name| name.last.0));
        time.with_label_values(&[kind]).set(newest.map_or(0, |name| name.created));
    }
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
