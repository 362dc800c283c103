//! Which Pod is replaced next after the template of the StatefulSet has changed.
//!
//! The StatefulSet itself would go by the places of Pods: it deletes a member that is well while another one, at a lower place, is down.
//! So its strategy is `OnDelete`, and the operator deletes Pods one at a time, the next one when another one is in its place: those that
//! are not ready first, since that takes nothing from the quorum and may be the cure; the others only while all members are well;
//! the leader last.

use repot_api::conditions::Reason;

/// The Pod at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Whether it is of an earlier template.
    pub outdated: bool,
    /// Whether it is ready, and stays.
    pub ready: bool,
    /// Whether it is being deleted.
    pub ending: bool,
    /// Whether its member leads.
    pub leads: bool,
}

/// What is done next about Pods of an earlier template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roll {
    /// All Pods are of the last template.
    Done,
    /// The Pod of this place is deleted, and the StatefulSet makes another one.
    Replace(usize),
    /// Nothing, until something else has happened.
    Wait(Reason),
}

/// What is done with these Pods, by place; `well`: all members of the etcd are, those elsewhere included, as far as that can be asked.
#[must_use]
pub fn decide(pods: &[Option<Pod>], well: bool) -> Roll {
    let outdated = || {
        let all = pods.iter().enumerate().filter_map(|(at, pod)| Some((at, (*pod)?)));
        all.filter(|(_, pod)| pod.outdated && !pod.ending)
    };
    if outdated().next().is_none() {
        return Roll::Done;
    }
    let wait_for = |at: usize| {
        let message = format!("Pods of the earlier template stay until member {at} is ready");
        Roll::Wait(Reason::new("MemberNotReady", message))
    };
    // Members that are not ready may only miss a leader for a moment, so that a second one would cost the quorum.
    if let Some(going) = pods.iter().position(|pod| pod.is_none_or(|pod| pod.ending)) {
        return wait_for(going);
    }
    if let Some((at, _)) = outdated().filter(|(_, pod)| !pod.ready).max_by_key(|(at, _)| *at) {
        return Roll::Replace(at);
    }
    if let Some(down) = pods.iter().position(|pod| !pod.is_some_and(|pod| pod.ready)) {
        return wait_for(down);
    }
    if !well {
        let message = "Pods of the earlier template stay until all members of the etcd are well";
        return Roll::Wait(Reason::new("MemberUnhealthy", message));
    }
    let next = outdated().min_by_key(|(at, pod)| (pod.leads, usize::MAX - at));
    next.map_or(Roll::Done, |(at, _)| Roll::Replace(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Pod = Pod { outdated: false, ready: true, ending: false, leads: false };
    const OLD: Pod = Pod { outdated: true, ..NEW };
    const LEADER: Pod = Pod { leads: true, ..OLD };
    const DOWN: Pod = Pod { ready: false, ..NEW };
    const OLD_DOWN: Pod = Pod { ready: false, ..OLD };
    const NEW_ENDING: Pod = Pod { ready: false, ending: true, ..NEW };
    const ENDING: Pod = Pod { ready: false, ending: true, ..OLD };

    #[test]
    fn no_member_is_deleted_while_another_is_down_and_the_leader_goes_last() {
        let reason = |roll: Roll| match roll {
            Roll::Done => "done".to_owned(),
            Roll::Replace(at) => format!("replace {at}"),
            Roll::Wait(why) => why.reason.to_owned(),
        };
        for (pods, well, expected) in [
            ([Some(NEW), Some(NEW), Some(NEW)], true, "done"),
            ([Some(OLD), Some(OLD), Some(OLD)], true, "replace 2"),
            ([Some(OLD), Some(OLD), Some(LEADER)], true, "replace 1"),
            ([Some(NEW), Some(NEW), Some(LEADER)], true, "replace 2"),
            ([Some(OLD), Some(OLD), Some(OLD)], false, "MemberUnhealthy"),
            // The StatefulSet would delete the third one.
            ([Some(OLD_DOWN), Some(OLD), Some(OLD)], true, "replace 0"),
            ([Some(OLD_DOWN), Some(OLD), Some(OLD)], false, "replace 0"),
            ([Some(DOWN), Some(OLD), Some(OLD)], true, "MemberNotReady"),
            ([None, Some(OLD), Some(OLD)], true, "MemberNotReady"),
            ([Some(OLD), Some(ENDING), Some(OLD)], true, "MemberNotReady"),
            ([Some(NEW), Some(ENDING), Some(NEW)], true, "done"),
            ([Some(OLD_DOWN), Some(OLD_DOWN), Some(OLD)], true, "replace 1"),
            // The other one may only miss a leader for a moment: one member at a time is taken away.
            ([Some(ENDING), Some(OLD_DOWN), Some(OLD)], true, "MemberNotReady"),
            ([Some(NEW_ENDING), Some(OLD_DOWN), Some(OLD)], true, "MemberNotReady"),
            ([Some(OLD_DOWN), None, Some(OLD)], true, "MemberNotReady"),
            ([Some(OLD_DOWN), Some(DOWN), Some(OLD)], true, "replace 0"),
        ] {
            assert_eq!(reason(decide(&pods, well)), expected, "{pods:?}");
        }
    }
}
