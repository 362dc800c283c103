//! The JSON of answers. Snapshots have the keys of etcd-backup-restore, the misspelt one too: clients read them.

use etcd_client::StatusResponse;
use repot_etcd_core::{
    agent::http::{AgentStatus, BackupStatus, GatewayStatus, MemberStatus, OwnerStatus, StandbyStatus},
    snapshot::{Kind, SnapshotName},
};
use serde_json::{Value, json};

use crate::{
    agent::{
        Agent,
        report::{Membership, Report},
    },
    snapshot::{restore::follow::StandbyState, store::Store},
};

/// A time that is none, as Go writes it.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

pub(super) fn snapshot(store: &Store, name: &SnapshotName) -> Value {
    let created = jiff::Timestamp::from_second(name.created).map(|time| time.to_string()).unwrap_or_default();
    let place = store.place_of(name);
    let bucket = url::Url::parse(&place).ok();
    let prefix = bucket.as_ref().map_or("", |url| url.path());
    let prefix = prefix.rsplit_once('/').map_or("", |(parent, _)| parent).trim_start_matches('/');
    json!({
        "createdOn": created,
        "immutabilityExpriyTime": NO_TIME,
        "versionID": "",
        "kind": name.kind.word(),
        "snapDir": "",
        "snapName": name.to_string(),
        "prefix": prefix,
        "compressionSuffix": name.compression.suffix(),
        "startRevision": name.start.0,
        "lastRevision": name.last.0,
        "isChunk": false,
        "isFinal": name.is_final,
    })
}

/// The newest full snapshot, and the deltas after it.
pub(super) fn latest(store: &Store, names: &[SnapshotName]) -> Value {
    let newest = names.iter().filter(|name| name.kind == Kind::Full).max();
    let after =
        |name: &&SnapshotName| name.kind == Kind::Delta && newest.is_some_and(|full| name.last > full.last);
    let deltas: Vec<Value> = names.iter().filter(after).map(|name| snapshot(store, name)).collect();
    json!({
        "fullSnapshot": newest.map(|name| snapshot(store, name)),
        "deltaSnapshots": (!deltas.is_empty()).then_some(deltas),
    })
}

/// The status of the member, with what etcd tells of itself in `found`.
pub(super) fn status(agent: &Agent, found: Option<&StatusResponse>) -> AgentStatus {
    let report = agent.board.read();
    let header = found.and_then(StatusResponse::header);
    let hex = |id: u64| (id != 0).then(|| format!("{id:x}"));
    let id = header.map_or(0, etcd_client::ResponseHeader::member_id);
    let leader = found.map_or(0, StatusResponse::leader);
    let gateway = agent.gateway.as_ref();
    AgentStatus {
        phase: format!("{:?}", report.phase),
        message: report.message.clone(),
        volumes: agent.settings.config.volumes.clone(),
        member: MemberStatus { id: hex(id), name: agent.settings.own.name.clone() },
        cluster: header.and_then(|header| hex(header.cluster_id())),
        leader: id != 0 && leader == id,
        leader_id: hex(leader),
        learner: found.is_some_and(StatusResponse::is_learner),
        revision: header.map(etcd_client::ResponseHeader::revision),
        version: found.map(|found| found.version().to_owned()),
        db_size: found.map(StatusResponse::db_size),
        needs_rejoin: report.membership == Membership::NeedsRejoin,
        removed: report.membership == Membership::Removed,
        restored: report.restored.clone(),
        standby: report.standby.as_ref().map(|standby| self::standby(&standby.borrow())),
        owner: owner(agent, &report),
        backup: agent.settings.config.store.as_ref().map(|_| backup(agent)),
        gateway: gateway.map(|gateway| GatewayStatus { auth_enabled: gateway.auth_enabled() }),
    }
}

fn standby(state: &StandbyState) -> StandbyStatus {
    StandbyStatus {
        base: state.base.as_ref().map(ToString::to_string),
        deltas: state.deltas,
        revision: state.revision.map(|revision| revision.0),
        ended: state.ended,
        message: state.message.clone(),
    }
}

/// Without a record in the configuration, too, a member may have lost ownership before.
fn owner(agent: &Agent, report: &Report) -> Option<OwnerStatus> {
    let ownership = &report.ownership;
    let record = agent.settings.config.owner.as_ref();
    (record.is_some() || !ownership.verdict.is_empty()).then(|| OwnerStatus {
        name: record.map(|owner| owner.name.clone()),
        id: record.map(|owner| owner.id.clone()),
        verdict: ownership.verdict.to_owned(),
        reason: ownership.reason.to_owned(),
        message: ownership.message.clone(),
        cut_off: ownership.cut_off.clone(),
        final_snapshot: ownership.final_snapshot.clone(),
        final_delta: report.final_delta.clone(),
        handover: ownership.handover.clone(),
    })
}

fn backup(agent: &Agent) -> BackupStatus {
    let state = agent.backups.state();
    let name = |name: Option<SnapshotName>| name.map(|name| name.to_string());
    BackupStatus {
        leads: state.leads,
        full: name(state.full),
        delta: name(state.delta),
        failing: state.failing,
    }
}
