//! The status of an Etcd, from what was seen and done in a pass. Pure.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use repot_etcd_core::handover::Handover;
use repot_etcd_core::{
    agent::http::StandbyStatus,
    members::{Role, quorum},
    operator::Next,
    rolling::Roll,
};

use crate::members::{Change, Outcome};

use super::{
    api::GENERATION,
    copy, copy_state, departure, findings,
    membership::MembershipStatus,
    names,
    observe::{is_ready, template},
    pass::Pass,
    rolling,
    status::{Bootstrapped, Finding, Founding, Joined, Member, Standby, Status, conditions},
};

/// Earlier sets of volumes that are remembered.
const EARLIER: usize = 8;

/// The status after a pass.
#[must_use]
pub fn status(pass: &Pass) -> Status {
    let Pass { observed, now, .. } = pass;
    let etcd = &observed.etcd;
    let before = observed.status();
    let members = members(pass, &before);
    let ready = members.iter().filter(|member| member.status == "Ready").count();
    let wanted = members.len();
    let (bootstrapped, founding) = (bootstrapped(pass, &before), founding(pass, &before));
    let findings = findings(pass, ready, wanted);
    let set = observed.set.as_ref().and_then(|set| set.status.as_ref());
    Status {
        observed_generation: etcd.metadata.generation,
        replicas: u32::try_from(observed.pods.len()).unwrap_or_default(),
        current_replicas: set
            .and_then(|set| set.updated_replicas)
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or_default(),
        ready_replicas: u32::try_from(ready).unwrap_or_default(),
        ready: findings.iter().any(|finding| finding.kind == "Ready" && finding.holds == Some(true)),
        selector: names::selector(&etcd.name_any()),
        peer_url_tls: etcd.spec.etcd.peer_url_tls.is_some(),
        members,
        conditions: conditions(&findings, &before.conditions, etcd.metadata.generation, *now),
        founding,
        bootstrapped,
        bootstrap_with_existing_cluster: joined(pass, &before),
        unknown_members: departure::unknown(observed, pass.known),
        source_copied: copy_state::completed(observed, &now.to_rfc3339()),
        copy_progress: observed.progress.clone(),
        handover: handover(pass, &before),
        standby: standby(pass, &before),
        last_errors: Vec::new(),
    }
}

/// The hand-over that an agent tells of, or told of earlier.
fn handover(pass: &Pass, before: &Status) -> Option<Handover> {
    let said = pass.known.into_iter().flat_map(|known| known.said.iter().flatten());
    let told = said.filter_map(|said| said.owner.as_ref()?.handover.clone()).next();
    told.or_else(|| before.handover.clone())
}

/// How far the standby is, as its agent says, or said earlier.
fn standby(pass: &Pass, before: &Status) -> Option<Standby> {
    if !pass.observed.stands_by() || pass.observed.is_founded() {
        return None;
    }
    let said = pass.known.into_iter().flat_map(|known| known.said.iter().flatten()).next();
    match said.and_then(|said| said.standby.clone()) {
        Some(StandbyStatus { base, revision, ended, message, .. }) => {
            Some(Standby { revision, base, ended, message })
        }
        None => before.standby.clone(),
    }
}

fn members(pass: &Pass, before: &Status) -> Vec<Member> {
    let made = (0..pass.planned_members()).map(|ordinal| {
        let name = names::member(&pass.observed.etcd, ordinal);
        let (status, reason) = readiness(pass, ordinal);
        let (id, role) = identity(pass, ordinal).unzip();
        let earlier = before.members.iter().find(|member| member.name == name);
        let since =
            earlier.filter(|member| member.status == status).and_then(|m| m.last_transition_time.clone());
        Member {
            id: id.or_else(|| earlier.and_then(|member| member.id.clone())),
            role: role.or_else(|| earlier.and_then(|member| member.role.clone())),
            name,
            status: status.to_owned(),
            reason,
            last_transition_time: since.or_else(|| Some(pass.now.to_rfc3339())),
        }
    });
    made.collect()
}

/// A member is ready when its Pod is; why it is not, its agent knows best.
fn readiness(pass: &Pass, ordinal: u32) -> (&'static str, String) {
    let said = pass.known.and_then(|known| known.said.get(ordinal as usize)?.as_ref());
    let reason = match pass.observed.pod(ordinal) {
        Some(pod) if is_ready(pod) => return ("Ready", "AnswersReads".to_owned()),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => "PodEnding",
        Some(_) => {
            let told = said.filter(|said| !said.phase.is_empty());
            let told = told.map(|said| if said.needs_rejoin { "NeedsRejoin" } else { said.phase.as_str() });
            return ("NotReady", told.unwrap_or("PodNotReady").to_owned());
        }
        None => "NoPod",
    };
    ("NotReady", reason.to_owned())
}

/// Id and role, as the members say.
fn identity(pass: &Pass, ordinal: u32) -> Option<(String, String)> {
    let seen = pass.known?.seen.as_ref()?;
    let own = pass.observed.side();
    let member = seen.members.iter().find(|member| member.side == own && member.ordinal == ordinal)?;
    let role = match member.role {
        _ if seen.leader == Some(member.id) => "Leader",
        Role::Voter => "Member",
        Role::Learner { .. } => "Learner",
    };
    Some((format!("{:x}", member.id.0), role.to_owned()))
}

/// The etcd that is joined is written down, since it is needed when nobody asks for it any more: to remove its members.
fn joined(pass: &Pass, before: &Status) -> Option<Joined> {
    let observed = pass.observed;
    let known = before.bootstrap_with_existing_cluster.clone();
    let Some(existing) = observed.existing() else { return known };
    let asked = observed.etcd.spec.etcd.bootstrap_with_existing_cluster.is_some();
    let outcome = pass.known.and_then(|known| known.outcome.as_ref());
    let complete = match outcome {
        Some(Outcome::Done) => true,
        Some(Outcome::Waiting(why)) => why.reason == "SourceNotReleased",
        _ => false,
    };
    let was_being_left = known.as_ref().is_some_and(|known| known.being_left);
    let earlier = known.and_then(|known| known.joined_at);
    let others = pass.known.and_then(MembershipStatus::others);
    Some(Joined {
        // Before it is asked for, a member that is missing there is being replaced by its own operator.
        being_left: was_being_left
            || (!asked && others.is_some_and(|others| others < existing.members.len())),
        joined_at: earlier.or_else(|| complete.then(|| pass.now.to_rfc3339())),
        members: existing.members,
        client_endpoints: existing.client_endpoints,
        released: !asked
            && observed.is_bootstrapped()
            && (outcome == Some(&Outcome::Done) || pass.known.is_some_and(MembershipStatus::are_alone)),
    })
}

/// Written before the first member starts, so that nobody founds with another number later.
fn founding(pass: &Pass, before: &Status) -> Option<Founding> {
    let observed = pass.observed;
    match pass.next {
        Next::Run { members } if !observed.is_founded() => {
            let standby = observed.stands_by();
            Some(Founding { volumes: observed.etcd.volumes(), members: *members, standby })
        }
        _ => before.founding.clone(),
    }
}

/// A set of volumes carries a cluster from the moment on at which all of its members were ready at once.
fn bootstrapped(pass: &Pass, before: &Status) -> Option<Bootstrapped> {
    let (observed, known) = (pass.observed, before.bootstrapped.clone());
    let volumes = observed.etcd.volumes();
    let exists = |set: &String| {
        let part = format!("{set}-{}", observed.etcd.name_any());
        observed.claims.iter().any(|claim| names::ordinal(&claim.name_any(), &part).is_some())
    };
    let in_use = observed.set.as_ref().is_some_and(|set| template(set) == volumes);
    let known_already = known.as_ref().is_some_and(|known| known.has(&volumes));
    let planned = pass.planned_members();
    let together = planned > 0 && (0..planned).all(|at| observed.pod(at).is_some_and(is_ready));
    if known.as_ref().is_some_and(|known| known.volumes == volumes) || !in_use || !(known_already || together)
    {
        return known.map(|known| Bootstrapped {
            earlier: known.earlier.into_iter().filter(|set| exists(set)).collect(),
            ..known
        });
    }
    let earlier = known.into_iter().flat_map(|known| std::iter::once(known.volumes).chain(known.earlier));
    let earlier = earlier.filter(|set| *set != volumes && exists(set)).take(EARLIER).collect();
    Some(Bootstrapped { volumes, time: pass.now.to_rfc3339(), earlier })
}

fn findings(pass: &Pass, ready: usize, members: usize) -> Vec<Finding> {
    let mut all = vec![quorate(pass, ready, members), all_ready(pass, ready, members), updated(pass)];
    all.push(scaled(pass));
    all.extend(findings::all(pass));
    all.extend(joining(pass));
    if copy::name(&pass.observed.etcd).is_some() && !pass.observed.stands_by() {
        all.push(copied(pass));
    }
    all
}

fn quorate(pass: &Pass, ready: usize, members: usize) -> Finding {
    let kind = "Ready";
    if members == 0 {
        let (reason, message) = idle(pass);
        return Finding { kind, holds: Some(false), reason, message };
    }
    let needed = quorum(members);
    let message = format!("{ready} of {members} members are ready, and {needed} are needed");
    let (holds, reason) = if ready >= needed { (true, "Quorate") } else { (false, "QuorumLost") };
    Finding { kind, holds: Some(holds), reason, message }
}

fn all_ready(pass: &Pass, ready: usize, members: usize) -> Finding {
    let kind = "AllMembersReady";
    if members == 0 {
        let (reason, message) = idle(pass);
        return Finding { kind, holds: Some(false), reason, message };
    }
    let (holds, reason) =
        if ready == members { (true, "AllMembersReady") } else { (false, "NotAllMembersReady") };
    Finding { kind, holds: Some(holds), reason, message: format!("{ready} of {members} members are ready") }
}

/// Why no member is wanted at the moment.
fn idle(pass: &Pass) -> (&'static str, String) {
    match pass.next {
        Next::Stop(why) | Next::Wait(why) | Next::Copy(why) => (why.reason, why.message.clone()),
        Next::Rest => ("Stopped", "spec.replicas is 0; the volumes are kept".to_owned()),
        Next::Run { .. } => ("NoMembers", "no member was added yet".to_owned()),
    }
}

/// Whether all Pods are of the last template, and volumes what they are asked to be.
fn updated(pass: &Pass) -> Finding {
    let finding = |holds, reason, message: String| Finding {
        kind: "AllMembersUpdated",
        holds: Some(holds),
        reason,
        message,
    };
    let Some(set) = &pass.observed.set else {
        return finding(false, "NoStatefulSet", "there is no StatefulSet".to_owned());
    };
    if let Some(difference) = volumes_differ(pass, set) {
        return finding(false, "VolumesDiffer", difference);
    }
    let status = set.status.clone().unwrap_or_default();
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
    // The template that is asked for may be yet to be written.
    let generation = pass.observed.etcd.metadata.generation.unwrap_or_default().to_string();
    let is_made = set.annotations().get(GENERATION) == Some(&generation);
    let seen = is_made && status.observed_generation >= set.metadata.generation;
    let updated = status.updated_replicas.unwrap_or_default();
    if seen && updated == wanted {
        return finding(true, "AllMembersUpdated", format!("all {wanted} Pods are of the last template"));
    }
    let so_far = format!("{updated} of {wanted} Pods are of the last template");
    match rolling::next(pass.observed, pass.planned_members(), pass.known) {
        Roll::Wait(why) => finding(false, why.reason, format!("{so_far}; {}", why.message)),
        Roll::Done | Roll::Replace(_) => finding(false, "Updating", so_far),
    }
}

/// Volumes that exist keep their size and class.
fn volumes_differ(pass: &Pass, set: &StatefulSet) -> Option<String> {
    let spec = &pass.observed.etcd.spec;
    let templates = set.spec.as_ref()?.volume_claim_templates.as_ref()?;
    let claim = templates.first()?.spec.as_ref()?;
    let size = claim.resources.as_ref()?.requests.as_ref()?.get("storage");
    let other_size = spec.storage_capacity.as_ref().filter(|wanted| Some(*wanted) != size);
    let other_class =
        spec.storage_class.as_ref().filter(|wanted| Some(*wanted) != claim.storage_class_name.as_ref());
    let differences = [other_size.map(|size| &size.0), other_class];
    let differences: Vec<&str> = differences.into_iter().flatten().map(String::as_str).collect();
    let message = format!(
        "volumes that exist keep size and class; {} takes effect with other volumes, by an EtcdMigration",
        differences.join(" and ")
    );
    (!differences.is_empty() && template(set) == pass.observed.etcd.volumes()).then_some(message)
}

fn scaled(pass: &Pass) -> Finding {
    let (wanted, planned) = (pass.observed.wanted(), pass.planned_members());
    let outcome = pass.known.and_then(|known| known.outcome.as_ref());
    let (holds, reason, message) =
        if pass.observed.is_ending() && departure::is_needed(pass.observed, pass.known) {
            let message = "members of another Etcd have no quorum without those here: \
                       they leave the etcd, or remove members here, before this Etcd goes";
            (false, "NeededByOthers", message.to_owned())
        } else if let Some(Outcome::Waiting(why) | Outcome::Refused(why)) = outcome {
            (false, why.reason, why.message.clone())
        } else if let Some(Outcome::Changed(Change::Updated { slot })) = outcome {
            (false, "UpdatingPeerUrls", format!("{slot} has its peer URLs"))
        } else if planned == wanted && !matches!(outcome, Some(Outcome::Changed(_))) {
            (true, "NoScaleOperation", "members are as many as are wanted".to_owned())
        } else if !matches!(pass.next, Next::Run { .. }) {
            let (reason, message) = idle(pass);
            (true, reason, message)
        } else if !pass.observed.is_founded() {
            let message = format!("{planned} members found the cluster; then it becomes {wanted}");
            (false, "FoundingFirst", message)
        } else {
            let reason = if planned <= wanted { "ScalingOut" } else { "ScalingIn" };
            (false, reason, format!("{planned} members are there, and {wanted} are wanted"))
        };
    Finding { kind: "ScaleOperationComplete", holds: Some(holds), reason, message }
}

/// Whether the members have joined the etcd of another seed, as far as they can while it has not been released.
fn joining(pass: &Pass) -> Option<Finding> {
    let kind = "BootstrappedWithExistingCluster";
    let joined = joined(pass, &pass.observed.status())?;
    let finding = match (joined.joined_at, pass.known.and_then(|known| known.outcome.as_ref())) {
        (Some(at), _) => {
            Finding { kind, holds: Some(true), reason: "Joined", message: format!("since {at}") }
        }
        (None, Some(Outcome::Waiting(why) | Outcome::Refused(why))) => {
            Finding { kind, holds: Some(false), reason: why.reason, message: why.message.clone() }
        }
        (None, _) => {
            let message = "members join one after the other".to_owned();
            Finding { kind, holds: Some(false), reason: "BootstrapInProgress", message }
        }
    };
    Some(finding)
}

fn copied(pass: &Pass) -> Finding {
    use repot_etcd_core::operator::Source;
    let (holds, reason, message) = match copy_state::source(pass.observed) {
        Source::Ready => (true, "Copied", "the snapshots of the other etcd were copied".to_owned()),
        Source::Missing(why) | Source::Outdated(why) => (false, why.reason, why.message),
    };
    Finding { kind: "SourceSnapshotsCopied", holds: Some(holds), reason, message }
}
