//! The configuration of the agents.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use repot_etcd_core::agent::config::{
    ClusterState, Config, Gateway, GatewayMember, Member, Owner, Ports, Restore, Snapshots, Store, Tls,
};

use super::{Layout, paths};
use crate::etcd::{
    api::{Backup, Etcd, Existing, OWN_HISTORIES, OwnerCheck, RESTORE_FROM},
    names,
};

/// What the agents are told.
#[must_use]
pub fn config(etcd: &Etcd, layout: &Layout) -> Config {
    let spec = &etcd.spec;
    let volumes = etcd.volumes();
    let founds = !layout.founded;
    Config {
        name: etcd.name_any(),
        namespace: etcd.namespace().unwrap_or_default(),
        cluster_token: format!("{}/{volumes}", etcd.uid().unwrap_or_default()),
        cluster_state: if founds { ClusterState::New } else { ClusterState::Existing },
        members: members(etcd, layout),
        client_endpoints: client_endpoints(etcd, layout),
        data_dir: paths::DATA.into(),
        ports: Ports {
            client: spec.etcd.client_port(),
            peer: spec.etcd.peer_port(),
            agent: spec.agent_port(),
        },
        store: store(&spec.backup).map(|store| Store { history: history(etcd), ..store }),
        restore: if layout.standby { standby(etcd) } else { restore(etcd) }.filter(|_| founds),
        snapshots: snapshots(&spec.backup),
        tls: tls(etcd),
        etcd_flags: flags(etcd),
        owner: spec.backup.owner_check.as_ref().map(record_of_owner),
        gateway: gateway(etcd, layout),
        volumes,
    }
}

/// In place of a timeout after which nothing else is done.
const FOR_EVER: &str = "87600h";

/// What of the configuration needs another start: the rest is of interest only to members whose volume is empty, and they read
/// it again by themselves. A standby without an owner's record learns by another start that it is to found the etcd; one with a record
/// founds it without.
#[must_use]
pub fn checksum(config: &Config) -> String {
    let lasting = Config {
        cluster_token: String::new(),
        cluster_state: ClusterState::New,
        members: Vec::new(),
        client_endpoints: Vec::new(),
        restore: config.restore.clone().filter(|restore| restore.standby && config.owner.is_none()),
        // It is told of other members while it runs.
        gateway: config.gateway.clone().map(|gateway| Gateway { members: Vec::new(), ..gateway }),
        ..config.clone()
    };
    let text = serde_json::to_vec(&lasting).unwrap_or_default();
    blake3::hash(&text).to_hex().chars().take(16).collect()
}

fn members(etcd: &Etcd, layout: &Layout) -> Vec<Member> {
    let own = (0..layout.members).map(|ordinal| Member {
        name: names::member(etcd, ordinal),
        pod: Some(names::pod(&etcd.name_any(), ordinal)),
        peer_urls: names::peer_urls(etcd, ordinal),
        client_urls: vec![names::client_url(etcd, ordinal)],
    });
    let others = layout.existing.iter().flat_map(|existing| &existing.members);
    let others = others.map(|other| Member {
        name: other.name.clone(),
        pod: None,
        peer_urls: other.peer_urls.clone(),
        client_urls: Vec::new(),
    });
    own.chain(others).collect()
}

/// Whom a member that joins asks: the etcd that exists, and the members that it has here.
fn client_endpoints(etcd: &Etcd, layout: &Layout) -> Vec<String> {
    let own = (0..layout.members).map(|ordinal| names::client_url(etcd, ordinal));
    let others = layout.existing.iter();
    others.flat_map(|existing| existing.client_endpoints.clone()).chain(own).collect()
}

fn store(backup: &Backup) -> Option<Store> {
    backup.store.as_ref().map(|store| Store {
        url: store.url(paths::LOCAL_STORE),
        credentials: store.secret_ref.as_ref().map(|_| paths::STORE.into()),
        endpoint: store.endpoint_override.clone(),
        history: None,
    })
}

/// The history that members on these volumes write, where it is one of their own.
fn history(etcd: &Etcd) -> Option<String> {
    let (volumes, own) = (etcd.volumes(), etcd.annotations().get(OWN_HISTORIES)?);
    own.split(',').any(|name| name == volumes).then_some(volumes)
}

/// Where clients are led before anybody tells who votes: a member that cannot serve passes them on to another.
fn gateway(etcd: &Etcd, layout: &Layout) -> Option<Gateway> {
    let wanted = etcd.spec.etcd.gateway.as_ref()?;
    let own = (0..layout.members).map(|ordinal| GatewayMember {
        name: names::member(etcd, ordinal),
        url: names::client_url(etcd, ordinal),
        near: true,
    });
    let others = layout.existing.iter().flat_map(Existing::endpoints);
    let others = others.map(|(member, url)| GatewayMember {
        name: member.name.clone(),
        url: url.to_owned(),
        near: false,
    });
    let members = own.chain(others).collect();
    Some(Gateway { port: wanted.port(), members, ..Gateway::default() })
}

/// One backup by its name; else what was copied from another store.
fn restore(etcd: &Etcd) -> Option<Restore> {
    let own = store(&etcd.spec.backup)?;
    let named = etcd.annotations().get(RESTORE_FROM).filter(|name| !name.is_empty());
    if let Some(name) = named {
        let store = Store { url: format!("{}/backups/{name}", own.url), ..own };
        return Some(Restore { store, standby: false, final_wait: None });
    }
    etcd.spec.backup.source_store.as_ref().map(|_| Restore { store: own, standby: false, final_wait: None })
}

/// What the other etcd writes, read where it writes it. Once nobody asks for a standby any more, it founds the etcd.
fn standby(etcd: &Etcd) -> Option<Restore> {
    let backup = &etcd.spec.backup;
    let source = backup.source_store.as_ref()?;
    let store = Store {
        url: source.url(paths::LOCAL_SOURCE),
        credentials: source.secret_ref.as_ref().map(|_| paths::SOURCE.into()),
        endpoint: source.endpoint_override.clone(),
        history: None,
    };
    let wait = &backup.wait_for_final_snapshot;
    let timeout = if wait.on_timeout == "Fail" { FOR_EVER } else { &wait.timeout };
    let final_wait = wait.enabled.then(|| timeout.to_owned());
    Some(Restore { store, standby: backup.standby, final_wait })
}

fn snapshots(backup: &Backup) -> Snapshots {
    let compression = backup.compression.as_ref().and_then(|compression| match compression.enabled {
        Some(false) => Some("none".to_owned()),
        _ => compression.policy.clone(),
    });
    Snapshots {
        full_schedule: backup.full_snapshot_schedule.clone(),
        delta_period: backup.delta_snapshot_period.clone(),
        delta_memory_limit: backup.delta_snapshot_memory_limit.as_ref().and_then(bytes),
        retention: backup.garbage_collection_policy.clone(),
        limit: backup.max_backups,
        closed_retention: None,
        compression,
    }
}

fn tls(etcd: &Etcd) -> Tls {
    let client = etcd.spec.etcd.client_url_tls.is_some();
    Tls {
        server: client.then(|| paths::SERVER_TLS.into()),
        client: client.then(|| paths::CLIENT_TLS.into()),
        peer: etcd.spec.etcd.peer_url_tls.as_ref().map(|_| paths::PEER_TLS.into()),
    }
}

/// Fields that are flags of etcd, and what the Etcd says beside them; the latter wins.
fn flags(etcd: &Etcd) -> BTreeMap<String, String> {
    let (members, shared) = (&etcd.spec.etcd, &etcd.spec.shared_config);
    let skip = members.peer_url_tls.as_ref().is_some_and(|tls| tls.skip_client_san_verification);
    let known = [
        ("quota-backend-bytes", Some(members.quota.as_ref().and_then(bytes).unwrap_or(QUOTA).to_string())),
        ("snapshot-count", members.snapshot_count.map(|count| count.to_string())),
        ("metrics", members.metrics.clone()),
        ("auto-compaction-mode", shared.auto_compaction_mode.clone()),
        ("auto-compaction-retention", shared.auto_compaction_retention.clone()),
        ("peer-skip-client-san-verification", skip.then(|| "true".to_owned())),
    ];
    let known = known.into_iter().filter_map(|(flag, value)| Some((flag.to_owned(), value?)));
    known.chain(members.extra_flags.clone()).collect()
}

/// What etcd advises at most.
const QUOTA: u64 = 8 << 30;

/// The record of the owner.
pub fn record_of_owner(check: &OwnerCheck) -> Owner {
    let or = |value: &Option<String>, otherwise: &str| value.clone().unwrap_or_else(|| otherwise.to_owned());
    Owner {
        name: check.name.clone(),
        id: check.id.clone(),
        joined_id: check.joined_id.clone(),
        servers: check.servers.clone(),
        ttl: or(&check.dns_cache_ttl, "120s"),
        interval: or(&check.interval, "30s"),
        timeout: or(&check.timeout, "30s"),
        grace: or(&check.grace, "60s"),
        quorum_timeout: None,
    }
}

/// Whole numbers with the suffixes that the CRD lets in.
fn bytes(quantity: &Quantity) -> Option<u64> {
    let text = &quantity.0;
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match &text[digits..] {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes() {
        let read = |text: &str| bytes(&Quantity(text.to_owned()));
        assert_eq!(
            ["10", "2Ki", "3M", "8Gi", "1.5Gi", "", "1x"].map(read),
            [Some(10), Some(2048), Some(3_000_000), Some(8 << 30), None, None, None]
        );
    }
}
