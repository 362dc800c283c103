//! The time, for all that is recorded of migrations.

use repot_apimachinery::time::Time;

/// The time of the system clock, in whole seconds.
pub(super) fn now() -> Time {
    Time(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default())
}
