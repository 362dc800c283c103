//! What an exposure needs of the Etcd: members that are known by other addresses, and that accept others from any address.

use kube::{Client, ResourceExt};
use repot_plan::migration::observed::ExposedMember;
use serde_json::{Value, json};

use crate::{
    etcd::api::{Etcd, FENCE},
    migration::{error::Result, seed::scale},
};

/// Annotation of an Etcd whose members are exposed, or were until a moment ago: whether `skipClientSANVerification` was set for that.
const RELAXED: &str = "migration.gardener.cloud/exposed-without-san-verification";

/// Annotation of an Etcd whose members are exposed: the `additionalAdvertisePeerURLs` that it had before, in JSON.
const FORMER_URLS: &str = "migration.gardener.cloud/former-advertised-peer-urls";

/// Whether anything of an Etcd is as an exposure needs it.
#[must_use]
pub fn is_exposed(etcd: &Etcd) -> bool {
    is_advertised(etcd) || etcd.annotations().contains_key(RELAXED)
}

/// Whether the members of an Etcd are known by further addresses alone.
#[must_use]
pub fn is_advertised(etcd: &Etcd) -> bool {
    let members = &etcd.spec.etcd;
    members.only_additional_peer_urls && !members.additional_peer_urls.is_empty()
}

/// Fields of `spec.etcd` with which members are known by these addresses alone.
#[must_use]
pub fn advertised(members: &[ExposedMember]) -> Value {
    let urls = |member: &ExposedMember| json!({"memberName": member.name, "urls": [member.peer_url]});
    json!({
        "additionalAdvertisePeerURLs": members.iter().map(urls).collect::<Vec<_>>(),
        "advertiseOnlyAdditionalPeerURLs": true,
    })
}

/// The field of `spec.etcd` with which members accept others from any address: a load balancer hides from where they connect.
#[must_use]
pub fn relaxed(etcd: &Etcd) -> Value {
    match etcd.spec.etcd.peer_url_tls {
        Some(_) => json!({"peerUrlTls": {"skipClientSANVerification": true}}),
        None => json!({}),
    }
}

/// The annotations that let [`hide`] take back what [`relaxed`] and [`advertised`] change.
#[must_use]
pub fn annotations(etcd: &Etcd, fence: &str) -> Value {
    let members = &etcd.spec.etcd;
    let is_relaxed = members.peer_url_tls.as_ref().is_some_and(|tls| !tls.skip_client_san_verification);
    let mut annotations = json!({FENCE: fence, RELAXED: is_relaxed.to_string()});
    if !members.additional_peer_urls.is_empty() && !is_advertised(etcd) {
        annotations[FORMER_URLS] = json!(members.additional_peer_urls).to_string().into();
    }
    annotations
}

/// The addresses by which members were known as well before they were exposed; `Null` where there were none.
fn former_urls(annotation: Option<&str>) -> Value {
    annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Lets the members of an Etcd be known by these addresses alone: first all of them accept others from any address.
///
/// # Errors
/// [`Error::Write`](crate::migration::error::Error::Write).
pub async fn advertise(
    client: &Client,
    etcd: &Etcd,
    members: &[ExposedMember],
    is_settled: bool,
    fence: &str,
) -> Result<()> {
    let patch = match etcd.annotations().contains_key(RELAXED) {
        false => {
            json!({"metadata": {"annotations": annotations(etcd, fence)}, "spec": {"etcd": relaxed(etcd)}})
        }
        true if is_settled => {
            json!({"metadata": {"annotations": {FENCE: fence}}, "spec": {"etcd": advertised(members)}})
        }
        true => return Ok(()),
    };
    scale::write(client, etcd, patch, "expose the members of").await
}

/// Takes back what an exposure needs: first the addresses, and when all members have those of their own seed, the rest. Members that
/// verified names again while others still reach them through a load balancer would lose these.
///
/// # Errors
/// [`Error::Write`](crate::migration::error::Error::Write).
pub async fn hide(client: &Client, etcd: &Etcd, is_settled: bool, fence: &str) -> Result<()> {
    let (annotations, spec) = match is_advertised(etcd) {
        true => {
            let former = former_urls(etcd.annotations().get(FORMER_URLS).map(String::as_str));
            let fields = json!({"additionalAdvertisePeerURLs": former, "advertiseOnlyAdditionalPeerURLs": Value::Null});
            (json!({FENCE: fence}), json!({"etcd": fields}))
        }
        false if is_settled => {
            (json!({FENCE: fence, RELAXED: Value::Null, FORMER_URLS: Value::Null}), strict(etcd))
        }
        false => return Ok(()),
    };
    let patch = json!({"metadata": {"annotations": annotations}, "spec": spec});
    scale::write(client, etcd, patch, "hide the members of").await
}

/// Takes out of a carried Etcd what an exposure at its seed needs.
pub fn forget(etcd: &mut Value) {
    let annotations = etcd.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    let former = annotations.remove(FORMER_URLS);
    let Some(relaxed) = annotations.remove(RELAXED) else { return };
    let former = former_urls(former.as_ref().and_then(Value::as_str));
    if let Some(members) = etcd.pointer_mut("/spec/etcd").and_then(Value::as_object_mut) {
        for field in [
            "additionalAdvertisePeerURLs",
            "additionalAdvertisePeerUrls",
            "advertiseOnlyAdditionalPeerURLs",
            "bootstrapWithExistingCluster",
        ] {
            members.remove(field);
        }
        // Carried as it was before, whenever that was read: a binding may change it.
        if !former.is_null() {
            members.insert("additionalAdvertisePeerURLs".to_owned(), former);
        }
    }
    if relaxed == "true"
        && let Some(tls) = etcd.pointer_mut("/spec/etcd/peerUrlTls").and_then(Value::as_object_mut)
    {
        tls.remove("skipClientSANVerification");
    }
    if let Some(check) = etcd.pointer_mut("/spec/backup/ownerCheck").and_then(Value::as_object_mut) {
        check.remove("joinedID");
    }
}

/// Members verify names as before, and check one owner ID alone.
fn strict(etcd: &Etcd) -> Value {
    let mut spec = json!({});
    if etcd.annotations().get(RELAXED).is_some_and(|relaxed| relaxed == "true") {
        spec["etcd"] = json!({"peerUrlTls": {"skipClientSANVerification": false}});
    }
    if etcd.spec.backup.owner_check.is_some() {
        spec["backup"] = json!({"ownerCheck": {"joinedID": Value::Null}});
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_members_had_before_come_back() {
        let urls = json!([{"memberName": "etcd-main-0", "urls": ["https://a.example.com:2380"]}]);
        let etcd: Etcd = serde_json::from_value(json!({
            "metadata": {"name": "etcd-main"}, "spec": {"etcd": {"additionalAdvertisePeerURLs": urls}},
        }))
        .expect("an Etcd");
        let written = annotations(&etcd, "f");
        assert_eq!(former_urls(written[FORMER_URLS].as_str()), urls);
        let members = json!({"additionalAdvertisePeerURLs": [], "advertiseOnlyAdditionalPeerURLs": true});
        let mut carried = json!({"metadata": {"annotations": written}, "spec": {"etcd": members}});
        forget(&mut carried);
        assert_eq!(carried["spec"]["etcd"], json!({"additionalAdvertisePeerURLs": urls}));
        assert_eq!(carried["metadata"]["annotations"], json!({FENCE: "f"}));
    }

    #[test]
    fn etcd_without_further_addresses_has_none_to_come_back() {
        let etcd: Etcd =
            serde_json::from_value(json!({"metadata": {"name": "e"}, "spec": {}})).expect("an Etcd");
        assert!(annotations(&etcd, "f").get(FORMER_URLS).is_none());
        assert_eq!(former_urls(None), Value::Null);
    }
}
