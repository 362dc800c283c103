//! Rows that the tables of a live migration have in common. Each table says what comes before them, and how long they count.

use super::members as etcd;
use crate::{
    flow::{OnFailure, Row, Timeout},
    migration::{
        MigrationFlow, Side, Step, destination as to, garden,
        rows::{A_DAY, day_long},
        source as from,
    },
};

pub(super) const DESTINATION_FIT: Row<MigrationFlow> = Row {
    does: "The rules, the conditions of the destination seed, and the versions of gardenlet and extensions allow it.",
    advice: "repair the destination, or migrate to another seed",
    ..Row::new(Side::Garden, Step::DestinationFit, garden::is_destination_fit)
};

pub(super) const SOURCE_SERVES: Row<MigrationFlow> = Row {
    does: "The owner record names the source with the epoch that its members check. Its API serves, and its etcd has three members.",
    advice: "repair the control plane at the source, or start a forced migration",
    ..Row::new(Side::Source, Step::SourceServes, etcd::does_source_serve)
};

pub(super) const SOURCE_MEMBERS_EXPOSED: Row<MigrationFlow> = Row {
    does: "Each member has a Service and a DNS name that other seeds reach, is known by it alone, and is ready.",
    timeout: Timeout::Steps(2),
    advice: "see in the Service and DNSRecord that are named why they have no address; see in the status of the Etcd which member is not ready",
    on_start: etcd::note_source,
    on_done: etcd::note_members,
    effects: etcd::expose,
    ..Row::new(Side::Source, Step::SourceMembersExposed, etcd::are_exposed_at_source)
};

pub(super) const DESTINATION_MEMBERS_EXPOSED: Row<MigrationFlow> = Row {
    does: "Each member that is going to join has a Service and a DNS name that other seeds reach.",
    advice: "see in the Service and DNSRecord that are named why they have no address",
    effects: etcd::expose,
    ..Row::new(Side::Destination, Step::DestinationMembersExposed, etcd::are_exposed_at_destination)
};

pub(super) const SIX_MEMBER_ETCD_READY: Row<MigrationFlow> = Row {
    does: "All members of the destination have joined the etcd of the source: its voters and those of the destination are one etcd.",
    timeout: Timeout::Steps(3),
    advice: "see in the status of the Etcd at the destination which member has not joined, and whether the seeds reach each other",
    on_start: etcd::note_join,
    effects: etcd::join,
    ..Row::new(Side::Destination, Step::SixMemberEtcdReady, etcd::have_joined)
};

pub(super) const SOURCE_API_STOPPED: Row<MigrationFlow> = Row {
    does: "No kube-apiserver runs at the source: they stop one after the other, and GOAWAY leads their clients to the destination.",
    advice: "see why kube-apiservers do not end, and whether somebody else scales their Deployment",
    effects: from::stop_api_by_turns,
    ..Row::new(Side::Source, Step::SourceApiStopped, from::is_api_stopped)
};

pub(super) const MOVE_COMMITTED: Row<MigrationFlow> = Row {
    does: "The point of no return is recorded. From here on members of the source leave the etcd.",
    on_failure: OnFailure::Fail,
    advice: "look at what the message says",
    ..Row::new(Side::Destination, Step::MoveCommitted, to::is_committed)
};

pub(super) const SOURCE_MEMBERS_REMOVED: Row<MigrationFlow> = Row {
    does: "The etcd has the members of the destination alone, and all of them are ready.",
    advice: "see in the status of the Etcd at the destination which member of the source is still there",
    effects: etcd::remove_source_members,
    ..day_long(Side::Destination, Step::SourceMembersRemoved, etcd::have_source_members_left)
};

pub(super) const SOURCE_ETCD_STOPPED: Row<MigrationFlow> = Row {
    does: "No member runs at the source, by its Pods.",
    on_failure: OnFailure::Skip,
    timeout: A_DAY,
    advice: "see why the members of the source do not end",
    effects: from::stop_removed_members,
    ..Row::new(Side::Source, Step::SourceEtcdStopped, from::is_etcd_stopped)
};

pub(super) const OWNER_RECORD_TAKEN: Row<MigrationFlow> = Row {
    does: "The owner record names the destination, with the next epoch.",
    advice: "see whether the DNS servers of the zone take updates",
    effects: to::take_ownership,
    ..day_long(Side::Destination, Step::OwnerRecordTaken, to::is_owner)
};

pub(super) const DESTINATION_MEMBERS_HIDDEN: Row<MigrationFlow> = Row {
    does: "The members are known by the addresses of their own seed, and the Services and DNS names for other seeds are gone.",
    advice: "see in the status of the Etcd which member is not ready",
    effects: etcd::hide,
    ..day_long(Side::Destination, Step::DestinationMembersHidden, etcd::are_hidden_at_destination)
};

pub(super) const SNAPSHOT_STORED: Row<MigrationFlow> = Row {
    does: "The bucket of the destination has a snapshot of the etcd.",
    advice: "see in the logs of the members why no snapshot can be stored",
    ..day_long(Side::Destination, Step::SnapshotStored, etcd::is_snapshot_stored)
};
