//! The DNSRecords of the API of a Shoot: their TTL, and the address that the zone answers with.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use kube::{Api, Client, ResourceExt};
use repot_api::names::{OPERATION, OPERATION_RECONCILE};
use repot_apimachinery::time::Time;
use repot_extension::{kinds::DNSRecord, status::OperationState};
use serde_json::json;

use super::{params, under};
use crate::{
    etcd::api::FENCE,
    migration::error::{Error, Result},
};

/// TTL of a DNSRecord that does not say (Gardener).
const DEFAULT_TTL: Duration = Duration::from_secs(120);
/// First label of the names of the API of a Shoot (Gardener).
const LABEL: &str = "api.";

/// Whether a record of this name and type is one of the API.
#[must_use]
pub fn is_of_api(name: &str, record_type: &str) -> bool {
    name.starts_with(LABEL) && record_type != "TXT"
}

/// Whether a DNSRecord is one of the API.
#[must_use]
pub fn is_one(record: &DNSRecord) -> bool {
    is_of_api(&record.spec.name, &record.spec.record_type)
}

/// The longest TTL of the records of the API, and who set all of them. A record that its controller has not written yet may still
/// have the default.
#[must_use]
pub fn ttl(records: &[DNSRecord]) -> (Duration, String) {
    let of = |record: &DNSRecord| {
        let wanted =
            record.spec.ttl.and_then(|ttl| u64::try_from(ttl).ok()).map_or(DEFAULT_TTL, Duration::from_secs);
        if is_written(record) { wanted } else { wanted.max(DEFAULT_TTL) }
    };
    let longest = records.iter().map(of).max().unwrap_or(DEFAULT_TTL);
    let mut fences: Vec<_> = records.iter().filter_map(|record| record.annotations().get(FENCE)).collect();
    let is_marked = fences.len() == records.len();
    fences.dedup();
    let fence = match (is_marked, fences.as_slice()) {
        (true, [fence]) => (*fence).clone(),
        _ => String::new(),
    };
    (longest, fence)
}

/// Whether the controller of a DNSRecord has written what its spec says.
#[must_use]
pub fn is_written(record: &DNSRecord) -> bool {
    let status = record.status.as_ref();
    let last = status.and_then(|status| status.last_operation.as_ref());
    let is_current = status.map(|status| status.observed_generation) == record.metadata.generation;
    is_current && last.is_some_and(|last| last.state == OperationState::Succeeded)
}

/// When the controller of these DNSRecords reported the last of them as written, by its own clock.
#[must_use]
pub fn written(records: &[DNSRecord]) -> Option<Time> {
    let reported = records.iter().filter(|record| is_written(record)).filter_map(|record| {
        let last = record.status.as_ref()?.last_operation.as_ref()?;
        u64::try_from(last.last_update_time.as_ref()?.0.as_second()).ok().map(Time)
    });
    reported.max()
}

/// Gives the records this TTL, each once by this fence.
///
/// # Errors
/// [`Error::Write`].
pub async fn ensure_ttl(
    client: &Client,
    namespace: &str,
    records: &[DNSRecord],
    ttl: Duration,
    fence: &str,
) -> Result<()> {
    let all = Api::<DNSRecord>::namespaced(client.clone(), namespace);
    let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    for record in records {
        let is_marked = record.annotations().get(FENCE).map(String::as_str) == Some(fence);
        if is_marked && record.spec.ttl == Some(seconds) {
            continue;
        }
        let annotations = json!({FENCE: fence, OPERATION: OPERATION_RECONCILE});
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"ttl": seconds}});
        let patch = under(record.resource_version(), patch);
        let name = record.name_any();
        let outcome = all.patch(&name, &params(), &patch).await;
        outcome.map_err(Error::write(format!("write the TTL of DNSRecord {name}")))?;
    }
    Ok(())
}

/// Names of the API in the zone of an owner record, whose servers can be asked for them, each with its addresses. Names whose values
/// are hosts are left out: others manage their addresses.
#[must_use]
pub fn names_beside<'a>(records: &'a [DNSRecord], owner: &str) -> BTreeMap<&'a str, BTreeSet<IpAddr>> {
    let domain = owner.trim_end_matches('.').split_once('.').map(|(_, domain)| domain);
    let mut names = BTreeMap::<&str, Option<BTreeSet<IpAddr>>>::new();
    for record in records {
        let name = record.spec.name.trim_end_matches('.');
        if name.strip_prefix(LABEL) != domain {
            continue;
        }
        let addresses: Option<BTreeSet<IpAddr>> =
            record.spec.values.iter().map(|value| value.parse().ok()).collect();
        let all = names.entry(name).or_insert_with(|| Some(BTreeSet::new()));
        *all = all.take().zip(addresses).map(|(all, more)| &all | &more);
    }
    names.into_iter().filter_map(|(name, all)| Some((name, all?))).collect()
}

/// Whether the values of all records contain the address. With addresses of both families there are two records of a name, and one of
/// them has it.
#[must_use]
pub fn say(records: &[DNSRecord], address: &str) -> bool {
    let has = |record: &DNSRecord| record.spec.values.iter().any(|value| value == address);
    let is_said = |name: &str| records.iter().any(|record| record.spec.name == name && has(record));
    records.iter().all(|record| is_said(&record.spec.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, value: &str) -> DNSRecord {
        serde_json::from_value(json!({
            "metadata": {"name": "x", "generation": 1},
            "spec": {
                "name": name, "recordType": "A", "values": [value], "ttl": 30, "type": "t",
                "secretRef": {"name": "s"},
            },
            "status": {
                "observedGeneration": 1,
                "lastOperation": {
                    "type": "Create", "state": "Succeeded", "progress": 100, "description": "",
                    "lastUpdateTime": "2026-01-01T00:00:00Z",
                },
            },
        }))
        .expect("a DNSRecord")
    }

    #[test]
    fn records_of_the_api_are_known_by_their_names() {
        assert!(is_of_api("api.a.example.org", "A") && is_of_api("api.a.example.org", "CNAME"));
        assert!(!is_of_api("api.a.example.org", "TXT") && !is_of_api("owner.a.example.org", "A"));
    }

    #[test]
    fn only_names_of_the_zone_of_the_owner_are_asked_for() {
        let all = [
            record("api.a.internal.org", "1.1.1.1"),
            record("api.a.internal.org", "fd00::1"),
            record("api.a.example.org", "1.1.1.1"),
        ];
        let addresses = ["1.1.1.1", "fd00::1"].map(|text| text.parse().expect("an address"));
        let wanted = BTreeMap::from([("api.a.internal.org", BTreeSet::from(addresses))]);
        assert_eq!(names_beside(&all, "owner.a.internal.org."), wanted);
        let host = [record("api.a.internal.org", "lb.example.org")];
        assert_eq!(names_beside(&host, "owner.a.internal.org"), BTreeMap::new());
    }

    #[test]
    fn records_say_an_address_where_each_of_them_does() {
        let (one, other) = (record("api.a.org", "1.1.1.1"), record("api.b.org", "1.1.1.2"));
        assert!(say(std::slice::from_ref(&one), "1.1.1.1"));
        assert!(!say(&[one.clone(), other], "1.1.1.1"));
        assert!(say(&[one, record("api.a.org", "fd00::1")], "1.1.1.1"));
    }

    #[test]
    fn ttl_is_the_longest_and_the_default_until_it_is_written() {
        let mut unwritten = record("api.a.org", "1.1.1.1");
        assert_eq!(ttl(std::slice::from_ref(&unwritten)).0, Duration::from_secs(30));
        unwritten.metadata.generation = Some(2);
        assert_eq!(ttl(&[unwritten]).0, DEFAULT_TTL);
    }
}
