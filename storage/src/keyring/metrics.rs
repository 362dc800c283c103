//! What is counted, under the names that kube-apiserver gives it.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use prometheus::{
    Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
    core::Collector, exponential_buckets,
};

/// Ids of keys that are counted at once: a service may make any number of them.
const MOST_KEYS: usize = 100;
const USE: [&str; 4] = ["transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"];

/// Counters of one keyring.
pub(super) struct Metrics {
    /// A hash of the name of this server.
    server: String,
    reloads: IntCounterVec,
    reloaded_at: GaugeVec,
    config: IntGaugeVec,
    calls: HistogramVec,
    uses: IntCounterVec,
    used_at: GaugeVec,
    told_at: GaugeVec,
    bad_key_ids: IntCounterVec,
    seeds: IntGaugeVec,
    wraps: IntCounterVec,
    /// Labels in use, the oldest first.
    known_uses: Mutex<VecDeque<[String; 3]>>,
    known_told: Mutex<VecDeque<[String; 2]>>,
}

impl Metrics {
    /// Zeroes, for the server of this hash.
    ///
    /// # Errors
    /// None in practice: names and labels are constants.
    pub(super) fn new(server: String) -> prometheus::Result<Self> {
        let controller = |name: &str| format!("apiserver_encryption_config_controller_{name}");
        let envelope = |name: &str| format!("apiserver_envelope_encryption_{name}");
        let gauges = |name: String, help: &str, labels: &[&str]| GaugeVec::new(Opts::new(name, help), labels);
        let latency = HistogramOpts::new(
            envelope("kms_operations_latency_seconds"),
            "Time of calls to key management services, by gRPC code.",
        );
        Ok(Self {
            reloads: IntCounterVec::new(
                Opts::new(controller("automatic_reloads_total"), "Reloads of the encryption configuration."),
                &["status", "apiserver_id_hash"],
            )?,
            reloaded_at: gauges(
                controller("automatic_reload_last_timestamp_seconds"),
                "When the encryption configuration was last reloaded.",
                &["status", "apiserver_id_hash"],
            )?,
            config: IntGaugeVec::new(
                Opts::new(
                    controller("last_config_info"),
                    "The encryption configuration in use, by its hash.",
                ),
                &["apiserver_id_hash", "hash"],
            )?,
            calls: HistogramVec::new(
                latency.buckets(exponential_buckets(0.0001, 2.0, 20)?),
                &["provider_name", "method_name", "grpc_status_code"],
            )?,
            uses: IntCounterVec::new(
                Opts::new(envelope("key_id_hash_total"), "Uses of keys of services."),
                &USE,
            )?,
            used_at: gauges(
                envelope("key_id_hash_last_timestamp_seconds"),
                "When a key of a service was last used.",
                &USE,
            )?,
            told_at: gauges(
                envelope("key_id_hash_status_last_timestamp_seconds"),
                "When a service last said that it encrypts with a key.",
                &USE[1..],
            )?,
            bad_key_ids: IntCounterVec::new(
                Opts::new(envelope("invalid_key_id_from_status_total"), "Ids of keys that are no ids."),
                &["provider_name", "error"],
            )?,
            seeds: IntGaugeVec::new(
                Opts::new(envelope("dek_source_cache_size"), "Seeds that need no call to be used."),
                &["provider_name"],
            )?,
            wraps: IntCounterVec::new(
                Opts::new(
                    "repot_encryption_key_wraps_total",
                    "Data keys that this server wrapped by a key of the encryption configuration. Sum it over servers and restarts: \
                     replace a key of aesgcm before the sum comes to 2^32.",
                ),
                &["provider", "key_name"],
            )?,
            server,
            known_uses: Mutex::default(),
            known_told: Mutex::default(),
        })
    }

    /// All of them, for a registry.
    pub(super) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.reloads.clone()),
            Box::new(self.reloaded_at.clone()),
            Box::new(self.config.clone()),
            Box::new(self.calls.clone()),
            Box::new(self.uses.clone()),
            Box::new(self.used_at.clone()),
            Box::new(self.told_at.clone()),
            Box::new(self.bad_key_ids.clone()),
            Box::new(self.seeds.clone()),
            Box::new(self.wraps.clone()),
        ]
    }

    /// The configuration was read again, or could not be used.
    pub(super) fn reloaded(&self, succeeded: bool) {
        let labels = [if succeeded { "success" } else { "failure" }, &self.server];
        self.reloads.with_label_values(&labels).inc();
        set_now(&self.reloaded_at.with_label_values(&labels));
    }

    /// The configuration of this hash is in use from now on.
    pub(super) fn in_use(&self, hash: &str) {
        self.config.reset();
        self.config.with_label_values(&[&self.server, hash]).set(1);
    }

    /// A service answered, or not.
    pub(super) fn called(&self, provider: &str, method: &str, code: &str, took: Duration) {
        self.calls.with_label_values(&[provider, method, code]).observe(took.as_secs_f64());
    }

    /// A key of a service wrapped or unwrapped.
    pub(super) fn used(&self, how: &str, provider: &str, key: &str) {
        let labels = [how, provider, key, &self.server];
        if let Some([how, provider, key]) = remember(&self.known_uses, [how, provider, key]) {
            let old = [how.as_str(), &provider, &key, &self.server];
            let _ = self.uses.remove_label_values(&old);
            let _ = self.used_at.remove_label_values(&old);
        }
        self.uses.with_label_values(&labels).inc();
        set_now(&self.used_at.with_label_values(&labels));
    }

    /// A service said which key it encrypts with.
    pub(super) fn key_id_told(&self, provider: &str, key: &str) {
        if let Some([provider, key]) = remember(&self.known_told, [provider, key]) {
            let _ = self.told_at.remove_label_values(&[provider.as_str(), &key, &self.server]);
        }
        set_now(&self.told_at.with_label_values(&[provider, key, &self.server]));
    }

    /// A service gave an id that is none.
    pub(super) fn bad_key_id(&self, provider: &str, error: &str) {
        self.bad_key_ids.with_label_values(&[provider, error]).inc();
    }

    /// Counts what a key of this name wraps. A key that is read again goes on counting.
    pub(super) fn wraps(&self, provider: &str, key: &str) -> IntCounter {
        self.wraps.with_label_values(&[provider, key])
    }

    /// How many seeds are at hand.
    pub(super) fn seeds(&self, provider: &str, count: u64) {
        self.seeds.with_label_values(&[provider]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Remembers labels; gives those back that are too old to be kept.
fn remember<const N: usize>(known: &Mutex<VecDeque<[String; N]>>, labels: [&str; N]) -> Option<[String; N]> {
    let mut known = known.lock();
    if known.iter().any(|own| own.iter().zip(labels).all(|(own, label)| own == label)) {
        return None;
    }
    known.push_back(labels.map(str::to_owned));
    if known.len() > MOST_KEYS { known.pop_front() } else { None }
}

fn set_now(gauge: &Gauge) {
    gauge.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn forgets_keys_that_were_used_longest_ago() {
        let metrics = Metrics::new("me".into()).unwrap();
        for key in 0..MOST_KEYS + 5 {
            metrics.used("to_storage", "p", &key.to_string());
            metrics.key_id_told("p", &key.to_string());
        }
        let count = |collector: &dyn Collector| collector.collect()[0].get_metric().len();
        assert_eq!(count(&metrics.uses), MOST_KEYS);
        assert_eq!(count(&metrics.used_at), MOST_KEYS);
        assert_eq!(count(&metrics.told_at), MOST_KEYS);
    }

    #[test]
    fn names_one_configuration_at_a_time() {
        let metrics = Metrics::new("me".into()).unwrap();
        metrics.in_use("sha256:1");
        metrics.in_use("sha256:2");
        let families = metrics.config.collect();
        assert_eq!(families[0].get_metric().len(), 1);
        assert_eq!(families[0].get_metric()[0].get_label()[1].value(), "sha256:2");
    }
}
