//! Metrics of the watchdog proxy, and its log of refusals.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::owner::NotOwner;
use crate::metrics::Metrics;

/// From an answer that is known to a query that ends by its timeout, in seconds.
const CHECK_SECONDS: &[f64] = &[0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// The log has one refusal in this time; the others are counted.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

const READ: &str = "read";
const WRITE: &str = "write";

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A read that was forwarded.
    Read,
    /// A write that was forwarded, since this seed owns the Shoot, or since it belongs to none.
    Written,
    /// A write that was forwarded although this seed does not own the Shoot.
    Exception,
    /// A write that was refused, since this seed does not own the Shoot.
    Refused,
    /// A write that was broken off, since the seed lost the Shoot meanwhile.
    BrokenOff,
    /// A request that is forwarded for nobody.
    NotForwarded,
    /// A request without an answer of kube-apiserver, or above a limit.
    Failed,
}

impl Outcome {
    const ALL: [Self; 7] = [
        Self::Read,
        Self::Written,
        Self::Exception,
        Self::Refused,
        Self::BrokenOff,
        Self::NotForwarded,
        Self::Failed,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Written => "written",
            Self::Exception => "exception",
            Self::Refused => "refused",
            Self::BrokenOff => "broken_off",
            Self::NotForwarded => "not_forwarded",
            Self::Failed => "failed",
        }
    }
}

/// A request that was forwarded.
#[derive(Debug)]
pub struct Active(IntGauge);

impl Active {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What the proxy counts.
#[derive(Debug)]
pub struct ProxyMetrics {
    requests: IntCounterVec,
    active: IntGaugeVec,
    /// How long writes wait until it is known who owns the Shoot.
    pub checks: Histogram,
    log: Mutex<(Option<Instant>, u64)>,
}

impl ProxyMetrics {
    /// Adds them to the metrics of the process.
    ///
    /// # Errors
    /// When they are there already.
    pub fn new(all: &Metrics) -> prometheus::Result<Self> {
        let requests = IntCounterVec::new(
            Opts::new("repot_watchdog_requests_total", "Requests of the controller by what became of them."),
            &["result"],
        )?;
        for outcome in Outcome::ALL {
            requests.with_label_values(&[outcome.label()]);
        }
        let help = "Time that writes waited until it was known who owns the Shoot.";
        let options = HistogramOpts::new("repot_watchdog_check_duration_seconds", help);
        let checks = Histogram::with_opts(options.buckets(CHECK_SECONDS.to_vec()))?;
        let help = "Requests that were forwarded and are not answered to their end; a watch is a read.";
        let active = IntGaugeVec::new(Opts::new("repot_watchdog_active_requests", help), &["kind"])?;
        for kind in [READ, WRITE] {
            active.with_label_values(&[kind]);
        }
        all.add(active.clone())?;
        all.add(requests.clone())?;
        all.add(checks.clone())?;
        Ok(Self { requests, active, checks, log: Mutex::default() })
    }

    /// Counts a request by its outcome.
    pub fn count(&self, outcome: Outcome) {
        self.requests.with_label_values(&[outcome.label()]).inc();
    }

    /// Counts a read as active until the result is dropped.
    #[must_use]
    pub fn active_read(&self) -> Active {
        Active::new(self.active.with_label_values(&[READ]))
    }

    /// The same for a write.
    #[must_use]
    pub fn active_write(&self) -> Active {
        Active::new(self.active.with_label_values(&[WRITE]))
    }

    /// Logs a refusal; one each second.
    pub fn log_refusal(&self, method: &http::Method, path: &str, namespace: &str, why: &NotOwner) {
        let left_out = {
            let mut log = self.log.lock();
            let now = Instant::now();
            if log.0.is_some_and(|last| now.duration_since(last) < LOG_INTERVAL) {
                log.1 += 1;
                return;
            }
            log.0 = Some(now);
            std::mem::take(&mut log.1)
        };
        tracing::warn!(%method, path, namespace, %why, left_out, "write refused, this seed does not own the Shoot");
    }
}
