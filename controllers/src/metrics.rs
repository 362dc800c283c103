//! Prometheus metrics of all controllers of a process.
//!
//! Values of labels come from this program alone: names of controllers, flows, steps, reasons and Leases. Users of the cluster can
//! invent any number of names of objects, so these are no labels.

use std::time::{Duration, Instant};

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::Collector,
};
use repot_apimachinery::time::Time;
use repot_plan::{
    flow::{Flow, LedgerOf, Plan},
    ledger::{Record, State},
    named::Named,
};

/// Buckets of a reconcile, in seconds: from reads of a few objects to calls of etcd and of a store, with their timeouts.
const RECONCILE_SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
/// Buckets of a step, in seconds: from one reconcile to a backup of hours. Times of steps are recorded in whole seconds.
const STEP_SECONDS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0, 86_400.0];

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// It returned when to reconcile again.
    Success,
    /// It failed and is retried.
    Error,
    /// An object has changed since it was read; the reconcile is retried on the new version.
    Conflict,
}

impl ReconcileResult {
    const ALL: [Self; 3] = [Self::Success, Self::Error, Self::Conflict];

    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Conflict => "conflict",
        }
    }
}

/// The metrics of all controllers of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    reconciles: IntCounterVec,
    durations: HistogramVec,
    active: IntGaugeVec,
    step_durations: HistogramVec,
    failed_steps: IntCounterVec,
    leader: IntGaugeVec,
}

/// A reconcile that runs. It counts as active until this is dropped, also where the reconcile is aborted.
#[derive(Debug)]
pub struct RunningReconcile<'a> {
    metrics: &'a Metrics,
    controller: &'static str,
    start: Instant,
}

impl Metrics {
    /// All metrics, without samples.
    ///
    /// # Errors
    /// When two metrics have the same name.
    pub fn new() -> prometheus::Result<Self> {
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
        };
        let metrics = Self {
            registry: Registry::new(),
            reconciles: IntCounterVec::new(
                Opts::new("repot_controller_reconciles_total", "Reconciles by controller and result."),
                &["controller", "result"],
            )?,
            durations: histogram(
                "repot_controller_reconcile_duration_seconds",
                "Duration of reconciles.",
                RECONCILE_SECONDS,
                &["controller"],
            )?,
            active: IntGaugeVec::new(
                Opts::new("repot_controller_active_reconciles", "Reconciles that run now."),
                &["controller"],
            )?,
            step_durations: histogram(
                "repot_flow_step_duration_seconds",
                "Time from the start of a step to its recorded end.",
                STEP_SECONDS,
                &["flow", "step"],
            )?,
            failed_steps: IntCounterVec::new(
                Opts::new("repot_flow_steps_failed_total", "Steps that failed, by reason."),
                &["flow", "step", "reason"],
            )?,
            leader: IntGaugeVec::new(
                Opts::new("repot_leader", "Whether this process holds the Lease of this name."),
                &["name"],
            )?,
        };
        metrics.register()?;
        Ok(metrics)
    }

    fn register(&self) -> prometheus::Result<()> {
        let all: [Box<dyn Collector>; 6] = [
            Box::new(self.reconciles.clone()),
            Box::new(self.durations.clone()),
            Box::new(self.active.clone()),
            Box::new(self.step_durations.clone()),
            Box::new(self.failed_steps.clone()),
            Box::new(self.leader.clone()),
        ];
        all.into_iter().try_for_each(|one| self.registry.register(one))
    }

    /// Creates the samples of a controller with the value 0, so that rates and alerts see its first error.
    pub fn init_controller(&self, controller: &'static str) {
        self.active.with_label_values(&[controller]);
        self.durations.with_label_values(&[controller]);
        for result in ReconcileResult::ALL {
            self.reconciles.with_label_values(&[controller, result.label()]);
        }
    }

    /// Counts a reconcile as active; [`RunningReconcile::end`] counts its result and duration.
    #[must_use]
    pub fn start_reconcile(&self, controller: &'static str) -> RunningReconcile<'_> {
        self.active.with_label_values(&[controller]).inc();
        RunningReconcile { metrics: self, controller, start: Instant::now() }
    }

    /// Counts the steps that ended between two ledgers. Call it once for each ledger, after it was stored.
    pub fn record_steps<F: Flow>(&self, plan: &Plan<F>, before: &LedgerOf<F>, next: &LedgerOf<F>) {
        for step in plan.steps() {
            let Some(record) = next.steps.get(&step).filter(|record| before.state(step) != record.state)
            else {
                continue;
            };
            if let Some(seconds) = duration(record) {
                self.step_durations.with_label_values(&[plan.kind, step.name()]).observe(seconds);
            }
            if record.state == State::Failed {
                self.failed_steps.with_label_values(&[plan.kind, step.name(), &record.reason]).inc();
            }
        }
    }

    /// The gauge that says whether this process holds the Lease of this name. It has a sample from now on.
    #[must_use]
    pub fn leader(&self, name: &'static str) -> IntGauge {
        self.leader.with_label_values(&[name])
    }

    /// Adds a metric of one role.
    ///
    /// # Errors
    /// When there is one with this name.
    pub fn add(&self, metric: impl Collector + 'static) -> prometheus::Result<()> {
        self.registry.register(Box::new(metric))
    }

    /// All metrics in the text format of Prometheus.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn render(&self) -> prometheus::Result<Vec<u8>> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// The seconds from the start of a step to its end; `None` where it has not ended.
fn duration(record: &Record) -> Option<f64> {
    let has_ended = matches!(record.state, State::Succeeded | State::Failed | State::Skipped);
    let (Some(Time(start)), Some(Time(end)), true) = (record.started, record.completed, has_ended) else {
        return None;
    };
    Some(Duration::from_secs(end.saturating_sub(start)).as_secs_f64())
}

impl RunningReconcile<'_> {
    /// Counts the result of the reconcile and how long it took.
    pub fn end(self, result: ReconcileResult) {
        let Self { metrics, controller, start } = &self;
        metrics.reconciles.with_label_values(&[*controller, result.label()]).inc();
        metrics.durations.with_label_values(&[*controller]).observe(start.elapsed().as_secs_f64());
    }
}

impl Drop for RunningReconcile<'_> {
    fn drop(&mut self) {
        self.metrics.active.with_label_values(&[self.controller]).dec();
    }
}
