//! The JSON of answers. Snapshots have the keys of etcd-backup-restore, the misspelt one too: clients read them.

use etcd_client::StatusResponse;
use serde_json::{Value, json};
use repot_etcd_core::snapshot::{Kind, SnapshotName};

use crate::{agent::{Agent, report::Membership}, snapshot::store::Store};

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

/// Ids are hexadecimal, as etcdctl prints them: a number of 64 bits does not survive every reader of JSON.
pub(super) fn status(agent: &Agent, found: Option<&StatusResponse>) -> Value {
    let report = agent.board.read();
    let header = found.and_then(StatusResponse::header);
    let hex = |id: u64| (id != 0).then(|| format!("{id:x}"));
    let id = header.map_or(0, etcd_client::ResponseHeader::member_id);
    let leader = found.map_or(0, StatusResponse::leader);
    let restored = report.restored.as_ref().map(|restored| {
        json!({
            "base": restored.plan.base.to_string(),
            "deltas": restored.plan.deltas.len(),
            "revision": restored.revision.0,
            "bumpedRevision": restored.bumped.0,
        })
    });
    let backup = agent.settings.config.store.as_ref().map(|_| {
        let state = agent.backups.state();
        let name = |name: Option<SnapshotName>| name.map(|name| name.to_string());
        json!({
            "leads": state.leads,
            "full": name(state.full),
            "delta": name(state.delta),
            "failing": state.failing,
        })
    });
    let record = agent.settings.config.owner.as_ref();
    // Without a record in the configuration, too, a member may have lost ownership before.
    let owner = (record.is_some() || !report.ownership.verdict.is_empty()).then(|| {
        json!({
            "name": record.map(|owner| &owner.name),
            "id": record.map(|owner| &owner.id),
            "verdict": report.ownership.verdict,
            "reason": report.ownership.reason,
            "message": report.ownership.message,
            "cutOff": report.ownership.cut_off,
            "finalSnapshot": report.ownership.final_snapshot,
            "handover": report.ownership.handover,
        })
    });
    let gateway = agent.gateway.as_ref().map(|door| json!({ "authEnabled": door.auth_enabled() }));
    json!({
        "phase": report.phase,
        "message": report.message,
        "volumes": agent.settings.config.volumes,
        "member": { "id": hex(id), "name": agent.settings.own.name },
        "cluster": header.and_then(|header| hex(header.cluster_id())),
        "leader": id != 0 && leader == id,
        "leaderId": hex(leader),
        "learner": found.is_some_and(StatusResponse::is_learner),
        "revision": header.map(etcd_client::ResponseHeader::revision),
        "version": found.map(StatusResponse::version),
        "dbSize": found.map(StatusResponse::db_size),
        "needsRejoin": report.membership == Membership::NeedsRejoin,
        "removed": report.membership == Membership::Removed,
        "restored": restored,
        "owner": owner,
        "backup": backup,
        "gateway": gateway,
    })
}
