//! Metrics of ShootStates that are kept up to date.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge};

use super::write::Synced;
use crate::metrics::Metrics;

/// Buckets of the lag, in seconds: changes are gathered for 2 to 10 s, and failures wait for up to 5 minutes.
const LAG_SECONDS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0, 60.0, 300.0, 1800.0];

/// What is counted of the ShootStates of a seed. Clones share it.
#[derive(Clone, Debug)]
pub struct StateMetrics {
    lag: Histogram,
    pending: IntGauge,
    sent: IntCounter,
}

impl StateMetrics {
    /// Adds them to the metrics of the process.
    ///
    /// # Errors
    /// When they are there already.
    pub fn new(all: &Metrics) -> prometheus::Result<Self> {
        let help = "Time from the first change in the seed until the ShootState had it.";
        let lag = HistogramOpts::new("repot_shootstate_lag_seconds", help).buckets(LAG_SECONDS.to_vec());
        let metrics = Self {
            lag: Histogram::with_opts(lag)?,
            pending: IntGauge::new(
                "repot_shootstate_pending",
                "Shoots whose ShootState is not yet compared after a change.",
            )?,
            sent: IntCounter::new(
                "repot_shootstate_sent_bytes_total",
                "Bytes of the requests that wrote ShootStates.",
            )?,
        };
        all.add(metrics.lag.clone())?;
        all.add(metrics.pending.clone())?;
        all.add(metrics.sent.clone())?;
        Ok(metrics)
    }

    /// Counts what a synchronization wrote.
    pub(super) fn count(&self, synced: &Synced) {
        self.sent.inc_by(synced.sent_bytes);
    }

    /// Counts how old the first change was that has just been written.
    pub(super) fn count_lag(&self, lag: Duration) {
        self.lag.observe(lag.as_secs_f64());
    }

    /// Says how many Shoots wait or are being synchronized.
    pub(super) fn set_pending(&self, count: usize) {
        self.pending.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
