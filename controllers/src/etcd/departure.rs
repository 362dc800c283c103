//! The finalizer of an Etcd whose members share an etcd with those of another: members that stop without being removed from it would
//! leave the others with a quorum that is harder to reach, or with none.
//!
//! The Etcd that joins another one has its members removed before it goes. The one that was joined knows the others only as
//! members that are not its own, and cannot have its members removed: that is up to the one that joined. So it goes on until the
//! others have a quorum without it, or have left.

use repot_plan::etcd::members::{Role, quorum};

use super::{
    membership::{self, Known},
    observe::Observed,
    status::{UnknownMember, UnknownMembers},
};

/// Whether the Etcd has to stay until its members have left, or are not needed any more.
#[must_use]
pub fn is_bound(observed: &Observed, known: Option<&Known>) -> bool {
    if observed.existing().is_none() {
        // Members of another seed need further URLs, so none have joined unseen before the finalizer was there.
        let may_be_joined = !observed.etcd.spec.etcd.additional_peer_urls.is_empty();
        return is_needed(observed, known) || (may_be_joined && !observed.is_ending());
    }
    if observed.wanted() > 0 {
        return true;
    }
    // The others are asked again before anything is given up.
    let Some(known) = known else { return observed.is_held() };
    pods(observed, known) != Some(0) && !known.are_alone()
}

/// Pods that the members of this Etcd need; nothing where that is not known. An etcd that was joined may end as soon as the last
/// member has left it. Then nobody else can tell that, and what agents read in their volumes counts.
#[must_use]
pub fn pods(observed: &Observed, known: &Known) -> Option<u32> {
    let by_agents = || {
        let running = observed.running().filter(|running| *running > 0 && known.seen.is_none())?;
        let is_removed = |at: u32| {
            let said = known.said.get(usize::try_from(at).ok()?)?.as_ref()?;
            Some(said.removed)
        };
        (0..running).all(|at| is_removed(at) == Some(true)).then_some(0)
    };
    known.pods(membership::side(observed)).or_else(by_agents)
}

/// Whether members of another Etcd have no quorum without those of this one. With neither StatefulSet nor volumes nothing is left that
/// they could need, as where the whole namespace goes.
#[must_use]
pub fn is_needed(observed: &Observed, known: Option<&Known>) -> bool {
    observed.places() > 0 && unknown(observed, known).is_some_and(|unknown| unknown.depend_on_own)
}

/// Whether that has to be asked before an Etcd that is being deleted is stopped.
#[must_use]
pub fn may_be_needed(observed: &Observed) -> bool {
    observed.is_ending() && observed.is_held() && observed.existing().is_none() && observed.places() > 0
}

/// Members that are not those of this Etcd: as they are seen, else as they were seen the last time.
#[must_use]
pub fn unknown(observed: &Observed, known: Option<&Known>) -> Option<UnknownMembers> {
    let before = observed.status();
    let Some(seen) = known.and_then(|known| known.seen.as_ref()) else { return before.unknown_members };
    // Of an etcd that is joined all members have seats.
    if observed.existing().is_some() {
        return None;
    }
    let is_own = |id: &str| before.members.iter().any(|member| member.id.as_deref() == Some(id));
    // One of ours may have no seat for a while, as while it gets other peer URLs.
    let others = seen.strangers.iter().filter(|one| !is_own(&format!("{:x}", one.id.0)));
    let members: Vec<UnknownMember> = others
        .clone()
        .map(|one| UnknownMember {
            name: one.name.clone(),
            id: format!("{:x}", one.id.0),
            role: if one.votes { "Member" } else { "Learner" }.to_owned(),
            peer_urls: one.peer_urls.clone(),
        })
        .collect();
    if members.is_empty() {
        // A list that was not read behind every change may be old.
        return before.unknown_members.filter(|_| !seen.settled);
    }
    let own = seen.members.iter().filter(|member| member.role == Role::Voter).count();
    let voters = own + seen.strangers.iter().filter(|one| one.votes).count();
    let depend_on_own = others.filter(|one| one.votes).count() < quorum(voters);
    Some(UnknownMembers { voters, depend_on_own, members })
}
