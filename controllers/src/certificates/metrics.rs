//! Metrics of certificates.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};
use repot_certs::rotation::CertificateState;
use time::OffsetDateTime;

use crate::metrics::Metrics;

/// What is counted of certificates. Clones share it.
#[derive(Clone, Debug)]
pub struct CertificateMetrics {
    ends: IntGaugeVec,
    renewals: IntCounterVec,
    errors: IntCounter,
    unpublished: IntGauge,
}

impl CertificateMetrics {
    /// Adds them to the metrics of the process.
    ///
    /// # Errors
    /// When they are there already.
    pub fn new(all: &Metrics) -> prometheus::Result<Self> {
        let metrics = Self {
            ends: IntGaugeVec::new(
                Opts::new(
                    "repot_certificate_not_after_timestamp_seconds",
                    "When a certificate ends; of authorities the one that signs.",
                ),
                &["secret", "kind"],
            )?,
            renewals: IntCounterVec::new(
                Opts::new("repot_certificate_renewals_total", "Certificates that were issued."),
                &["secret"],
            )?,
            errors: IntCounter::new(
                "repot_certificate_errors_total",
                "Passes after which certificates were not as they should be.",
            )?,
            unpublished: IntGauge::new(
                "repot_certificates_unpublished",
                "APIServices and webhook configurations that do not have the bundle of authorities.",
            )?,
        };
        all.add(metrics.ends.clone())?;
        all.add(metrics.renewals.clone())?;
        all.add(metrics.errors.clone())?;
        all.add(metrics.unpublished.clone())?;
        Ok(metrics)
    }

    pub(super) fn count_error(&self) {
        self.errors.inc();
    }

    pub(super) fn count_renewal(&self, secret: &str) {
        self.renewals.with_label_values(&[secret]).inc();
    }

    pub(super) fn set_unpublished(&self, count: usize) {
        self.unpublished.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn set_ends(
        &self,
        secret: &str,
        signer: Option<OffsetDateTime>,
        serving: &[CertificateState],
    ) {
        if let Some(end) = signer {
            self.ends.with_label_values(&[secret, "authority"]).set(end.unix_timestamp());
        }
        for certificate in serving {
            // One that cannot be used has ended.
            let end = certificate.validity.map_or(0, |validity| validity.until.unix_timestamp());
            self.ends.with_label_values(&[certificate.name.as_str(), "serving"]).set(end);
        }
    }
}
