//! Which histories of the backup store the sets of volumes of an Etcd write.

use kube::ResourceExt;
use repot_etcd::snapshot::store::FIRST_HISTORY;
use repot_etcd_core::volumes::VolumeSet;

use super::site::ControlPlane;
use crate::etcd::api::OWN_HISTORIES;

/// Names in an annotation of the Etcd: the sets of volumes whose members write a history of their own.
fn named(site: &ControlPlane) -> impl Iterator<Item = &str> {
    let names = site.etcd.as_ref().and_then(|etcd| etcd.annotations().get(OWN_HISTORIES));
    names.map_or("", String::as_str).split(',').filter(|name| !name.is_empty())
}

/// New volumes get a history of their own. Those before them keep theirs for as long as they exist: the etcd may go back to them.
pub(super) fn own(site: &ControlPlane, new: &VolumeSet) -> String {
    let exists = |name: &&str| site.claims_of(&VolumeSet((*name).to_owned())).next().is_some();
    let old = named(site).filter(|name| *name != new.0).filter(exists);
    old.chain([new.0.as_str()]).collect::<Vec<_>>().join(",")
}

/// The history that only members on these volumes write; `None` where the Etcd as it is writes the same.
pub(super) fn to_close(site: &ControlPlane, released: &VolumeSet) -> Option<String> {
    let history = |set: &VolumeSet| {
        let own = named(site).find(|name| *name == set.0);
        own.unwrap_or(FIRST_HISTORY).to_owned()
    };
    let released = history(released);
    (history(&site.template()?) != released).then_some(released)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    use super::*;
    use crate::{etcd::api::Etcd, workflow::api::HostedEtcd};

    /// An Etcd on these volumes, with claims of these sets.
    fn mk_site(template: &str, annotation: Option<&str>, claims: &[&str]) -> ControlPlane {
        let hosted: HostedEtcd = serde_json::from_value(json!({
            "metadata": {"name": "cluster"}, "spec": {"etcdRef": {"name": "main"}},
        }))
        .expect("a HostedEtcd");
        let mut etcd: Etcd = serde_json::from_value(json!({
            "metadata": {"name": "main"}, "spec": {"volumeClaimTemplate": template, "replicas": 1},
        }))
        .expect("an Etcd");
        etcd.metadata.annotations =
            annotation.map(|names| [(OWN_HISTORIES.to_owned(), names.to_owned())].into());
        let claim = |set: &&str| {
            let mut claim = PersistentVolumeClaim::default();
            claim.metadata.name = Some(format!("{set}-main-0"));
            claim
        };
        ControlPlane {
            hosted,
            deployment: None,
            servers: Vec::new(),
            etcd: Some(etcd),
            set: None,
            members: Vec::new(),
            claims: claims.iter().map(claim).collect(),
        }
    }

    #[test]
    fn volumes_keep_their_history_for_as_long_as_they_exist() {
        let second = VolumeSet("v2".to_owned());
        let names = |template: &str, annotation: Option<&str>, claims: &[&str]| {
            own(&mk_site(template, annotation, claims), &second)
        };
        // The first migration.
        assert_eq!(names("main", None, &["main"]), "v2");
        assert_eq!(names("v2", Some("v2"), &["main", "v2"]), "v2");
        // The next one: what is asked for in each pass is the same, whatever the Etcd is on by then.
        let first_pass = names("v1", Some("v1"), &["v1"]);
        assert_eq!(first_pass, "v1,v2");
        assert_eq!(names("v2", Some(&first_pass), &["v1", "v2"]), "v1,v2");
        // Rolled back, and begun once more.
        assert_eq!(own(&mk_site("v1", Some("v1,v2"), &["v1"]), &VolumeSet("v3".to_owned())), "v1,v3");
    }

    #[test]
    fn only_the_history_of_released_volumes_is_closed() {
        let closed = |template: &str, annotation: Option<&str>, released: &str| {
            let site = mk_site(template, annotation, &["main", "v1", "v2"]);
            to_close(&site, &VolumeSet(released.to_owned()))
        };
        let name = |name: &str| Some(name.to_owned());
        // The volumes before the first restore, and those of a restore that was rolled back.
        assert_eq!(closed("v1", Some("v1"), "main"), name(FIRST_HISTORY));
        assert_eq!(closed("main", Some("v1"), "v1"), name("v1"));
        assert_eq!(closed("v2", Some("v1,v2"), "v1"), name("v1"));
        // Volumes that no member was ever started on, and an Etcd whose annotation is lost.
        assert_eq!(closed("main", None, "v1"), None);
        assert_eq!(closed("v2", Some(""), "v1"), None);
        assert_eq!(closed("v1", Some("v1"), "v1"), None);
        let mut gone = mk_site("v1", Some("v1"), &[]);
        gone.etcd = None;
        assert_eq!(to_close(&gone, &VolumeSet("main".to_owned())), None);
    }
}
