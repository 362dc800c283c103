//! Metrics of objects whose namespace is gone.

use prometheus::{IntCounter, IntGaugeVec, Opts, Registry};

/// Metrics of objects whose namespace is gone: found ones by reason, and removed ones.
pub struct Counters {
    pub(crate) found: IntGaugeVec,
    pub(crate) removed: IntCounter,
}

impl Counters {
    /// Zeroes.
    ///
    /// # Errors
    /// When two metrics have one name.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let found =
            Opts::new("repot_orphaned_objects", "Objects whose namespace is gone, by what is known of it.");
        let counters = Self {
            found: IntGaugeVec::new(found, &["reason"])?,
            removed: IntCounter::new(
                "repot_orphaned_objects_removed_total",
                "Objects removed with their namespace.",
            )?,
        };
        registry.register(Box::new(counters.found.clone()))?;
        registry.register(Box::new(counters.removed.clone()))?;
        Ok(counters)
    }
}
