//! Metrics of an agent. etcd has its own, at its client URL.

use prometheus::{Encoder, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};
use repot_etcd_core::snapshot::SnapshotName;

use super::{
    backups::State,
    report::{Membership, Ownership, Phase, Report},
    supervisor::Seen,
};

/// What is told at the moment, as Prometheus reads it.
///
/// # Errors
/// Where a name is not a name of a metric.
pub(super) fn render(report: &Report, seen: Seen, backups: &State) -> Result<String, prometheus::Error> {
    let page = Page(Registry::new());
    let phase =
        page.gauge("phase", "What the member is doing: 1 for the phase that it is in.", &["phase"])?;
    for each in Phase::ALL {
        phase.with_label_values(&[format!("{each:?}").as_str()]).set(i64::from(report.phase == each));
    }
    let help = "What follows from the owner record: 1 for the newest verdict; all 0 without an owner check.";
    let ownership = page.gauge("ownership", help, &["verdict"])?;
    for verdict in Ownership::VERDICTS {
        ownership.with_label_values(&[verdict]).set(i64::from(report.ownership.verdict == verdict));
    }
    page.flag("etcd_running", "Whether etcd runs.", seen.pid.is_some())?;
    let help = "How often etcd has ended by itself or could not be started.";
    page.count("etcd_failures_total", help, report.failures)?;
    let help = "Whether the member has to be removed and added again.";
    page.flag("needs_rejoin", help, report.membership == Membership::NeedsRejoin)?;
    page.flag("backup_leader", "Whether this agent is the one that takes snapshots.", backups.leads)?;
    let help = "Whether no snapshot can be taken at the moment.";
    page.flag("backup_failing", help, backups.failing.is_some())?;
    let help = "How many attempts to take snapshots have failed.";
    page.count("snapshot_failures_total", help, backups.failed)?;
    let help = "How many snapshots were deleted because they are not kept.";
    page.count("snapshots_deleted_total", help, backups.deleted)?;
    let taken = page.counter("snapshots_total", "How many snapshots this agent has taken.", &["kind"])?;
    let help = "The last revision in the newest snapshot.";
    let revision = page.gauge("snapshot_revision", help, &["kind"])?;
    let help = "When the newest snapshot was begun.";
    let time = page.gauge("snapshot_timestamp_seconds", help, &["kind"])?;
    let kinds = [("Full", backups.taken.0, &backups.full), ("Incr", backups.taken.1, &backups.delta)];
    for (kind, number, newest) in kinds {
        taken.with_label_values(&[kind]).inc_by(number);
        let newest: Option<&SnapshotName> = newest.as_ref();
        revision.with_label_values(&[kind]).set(newest.map_or(0, |name| name.last.0));
        time.with_label_values(&[kind]).set(newest.map_or(0, |name| name.created));
    }
    let mut text = Vec::new();
    TextEncoder::new().encode(&page.0.gather(), &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Metrics of one answer: they are made of what is so at the moment, and nothing is kept between two answers.
struct Page(Registry);

impl Page {
    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        let made = IntGaugeVec::new(options(name, help), labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        let made = IntCounterVec::new(options(name, help), labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn flag(&self, name: &str, help: &str, value: bool) -> Result<(), prometheus::Error> {
        self.gauge(name, help, &[])?.with_label_values::<&str>(&[]).set(i64::from(value));
        Ok(())
    }

    fn count(&self, name: &str, help: &str, value: u64) -> Result<(), prometheus::Error> {
        self.counter(name, help, &[])?.with_label_values::<&str>(&[]).inc_by(value);
        Ok(())
    }
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(format!("repot_etcd_agent_{name}"), help)
}
