//! Giving up the members of the source for a destination that cannot start beside them.

use repot_api::{
    gardener::{
        progress::{Progress, Step},
        shoot::Shoot,
    },
    names::FORCE_SHRINK_ETCD,
};
use repot_apimachinery::value::parse_bool;

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let Some(value) = change.sets(FORCE_SHRINK_ETCD) else { return Vec::new() };
    let progress = Progress(&change.old);
    let reason = match parse_bool(value) {
        Some(false) => return Vec::new(),
        None => "the value is neither true nor false",
        Some(true) if !Shoot(&change.old).is_moving_live() => "no live migration runs",
        Some(true) if progress.joining() != Step::Done => {
            "the members of the destination have not joined (condition DestinationEtcdPeersJoined, step SixMemberETCDReady): \
             without the source there would be no etcd"
        }
        Some(true) if progress.api_servers() == Step::Done => {
            "the API servers of the destination are up: nothing is won by it"
        }
        Some(true) if progress.api_servers() != Step::Failed => {
            "the API servers of the destination may still come up: condition DestinationKubeAPIServerReady has not failed"
        }
        Some(true) => return Vec::new(),
    };
    let advice = "it costs downtime, and is for a healthy etcd beside which the destination's API servers do not come up; remove it";
    vec![Finding::refuse(annotation_path(FORCE_SHRINK_ETCD), reason, advice)]
}
