//! The time, for all that is recorded of migrations.

use jiff::Timestamp;
use repot_apimachinery::time::Time;

/// The time of the system clock, in whole seconds.
pub(crate) fn now() -> Time {
    Time(u64::try_from(Timestamp::now().as_second()).unwrap_or_default())
}

/// A time of a record, as Kubernetes has times.
pub(crate) fn timestamp(time: Time) -> Timestamp {
    i64::try_from(time.0).ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default()
}
