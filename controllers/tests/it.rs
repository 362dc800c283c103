//! What the operator makes of an Etcd. `UPDATE_GOLDENS=1 cargo test -p repot-controllers --test it` writes the goldens anew.

use std::{fs, path::Path};

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use repot_controllers::etcd::{
    api::Etcd,
    names,
    render::{self, Kind, Layout},
};
use repot_etcd_core::agent::config::{ClusterState, Config};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn mk_etcd(spec: Value) -> Etcd {
    let metadata = json!({
        "name": "main", "namespace": "shoot--p--s", "uid": "0b6b2b2e-5d2c-4f0e-9d9c-1d6f0a8f3c11",
        "annotations": {"migration.gardener.cloud/fence": "f-1"},
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("an Etcd")
}

fn mk_layout(members: u32, founded: bool) -> Layout {
    Layout { image: "repot:1".into(), members, founded, existing: None, standby: false, exists: None }
}

/// As the operator lays it out.
fn layout_of(etcd: &Etcd, members: u32) -> Layout {
    let existing = etcd.spec.etcd.bootstrap_with_existing_cluster.clone();
    Layout { founded: existing.is_some(), existing, ..mk_layout(members, false) }
}

fn plain() -> Etcd {
    mk_etcd(json!({"replicas": 3}))
}

fn full() -> Etcd {
    let tls = json!({
        "tlsCASecretRef": {"name": "ca", "dataKey": "bundle.crt"}, "serverTLSSecretRef": {"name": "server"},
        "clientTLSSecretRef": {"name": "client"},
    });
    let peer = json!({
        "tlsCASecretRef": {"name": "peer-ca"}, "serverTLSSecretRef": {"name": "peer"}, "skipClientSANVerification": true,
    });
    let store = json!({
        "provider": "S3", "container": "b", "prefix": "shoot--p--s/etcd-main", "endpointOverride": "http://minio:9000",
        "secretRef": {"name": "etcd-backup"},
    });
    mk_etcd(json!({
        "replicas": 3, "memberNamePrefix": "seed-b", "volumeClaimTemplate": "n-7", "storageClass": "fast",
        "storageCapacity": "25Gi", "labels": {"gardener.cloud/role": "controlplane"}, "annotations": {"a": "b"},
        "priorityClassName": "high", "runAsRoot": true,
        "schedulingConstraints": {"affinity": {"podAntiAffinity": {}}},
        "sharedConfig": {"autoCompactionMode": "periodic", "autoCompactionRetention": "30m"},
        "etcd": {
            "image": "other:2", "clientPort": 12379, "serverPort": 12380, "quota": "4Gi", "snapshotCount": 5000, "metrics": "basic",
            "resources": {"requests": {"cpu": "100m"}}, "extraFlags": {"heartbeat-interval": "200", "metrics": "extensive"}, "gateway": {"port": 12381},
            "clientUrlTls": tls, "peerUrlTls": peer,
            "clientService": {"annotations": {"c": "d"}, "labels": {"e": "f"}, "trafficDistribution": "PreferClose"},
            "additionalAdvertisePeerUrls": [
                {"memberName": "seed-b-main-0", "urls": ["https://lb.example.com:30000"]},
                {"memberName": "main-1", "urls": ["https://lb.example.com:30001"]},
            ],
            "bootstrapWithExistingCluster": {
                "members": [{"name": "seed-a-main-0", "peerUrls": ["https://a.example.com:30000"]}],
                "clientEndpoints": ["https://a.example.com:443"],
            },
        },
        "backup": {
            "port": 18080, "store": store, "fullSnapshotSchedule": "0 */6 * * *", "garbageCollectionPolicy": "LimitBased",
            "maxBackupsLimitBasedGC": 9, "deltaSnapshotPeriod": "10s", "deltaSnapshotMemoryLimit": "100Mi",
            "compression": {"enabled": false}, "ownerCheck": {"name": "owner.example.com", "id": "garden-a/1", "servers": ["ns:example.com"]},
        },
    }))
}

/// All objects as they are applied.
fn rendered(etcd: &Etcd, layout: &Layout) -> Vec<Value> {
    let mut all: Vec<Value> = render::surroundings(etcd, layout).into_iter().map(|one| one.object).collect();
    all.push(render::stateful_set(etcd, layout));
    all
}

fn check_golden(name: &str, made: &Value) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    let text = format!("{made:#}\n");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&file, &text).expect("written");
    }
    let rests = fs::read_to_string(&file).unwrap_or_default();
    assert!(rests == text, "{name} is not what is made; UPDATE_GOLDENS=1 brings it up to date:\n{text}");
}

#[test]
fn objects_are_the_golden_ones() {
    check_golden("plain.json", &json!(rendered(&plain(), &layout_of(&plain(), 3))));
    check_golden("full.json", &json!(rendered(&full(), &layout_of(&full(), 2))));
}

/// A field that Kubernetes does not know would be dropped in silence.
#[test]
fn objects_have_only_fields_that_kubernetes_knows() {
    fn check<K: Serialize + DeserializeOwned>(object: &Value) {
        let typed: K = serde_json::from_value(object.clone()).expect("an object of its kind");
        let again = serde_json::to_value(&typed).expect("JSON");
        assert_eq!(&again, object);
    }
    for etcd in [plain(), full()] {
        for one in render::surroundings(&etcd, &mk_layout(3, true)) {
            match one.kind {
                Kind::ServiceAccount => check::<ServiceAccount>(&one.object),
                Kind::DisruptionBudget => check::<PodDisruptionBudget>(&one.object),
                Kind::Service => check::<Service>(&one.object),
                Kind::ConfigMap => check::<ConfigMap>(&one.object),
                Kind::StatefulSet | Kind::Job => unreachable!("it comes last"),
            }
        }
        check::<StatefulSet>(&render::stateful_set(&etcd, &mk_layout(3, true)));
    }
}

#[test]
fn further_peer_urls_go_by_the_name_of_the_member() {
    let etcd = full();
    let own = |at| format!("https://main-{at}.main-peer.shoot--p--s.svc:12380");
    assert_eq!(names::peer_urls(&etcd, 0), [own(0), "https://lb.example.com:30000".to_owned()]);
    // `main-1` is the name of a Pod, and of no member.
    assert_eq!(names::peer_urls(&etcd, 1), [own(1)]);
    let mut alone = full();
    alone.spec.etcd.only_additional_peer_urls = true;
    assert_eq!(names::peer_urls(&alone, 0), ["https://lb.example.com:30000"]);
    assert_eq!(names::peer_urls(&alone, 1), [own(1)]);
}

#[test]
fn agents_are_told_to_found_once_and_to_restore_only_then() {
    let mut etcd = plain();
    let config = |etcd: &Etcd, bootstrapped| render::config(etcd, &mk_layout(3, bootstrapped));
    let store = json!({"provider": "Local", "container": "/backups", "prefix": "p/"});
    etcd.spec.backup.store = Some(serde_json::from_value(store).expect("a store"));
    assert_eq!(config(&etcd, false).restore, None);
    let url = |config: &Config| config.restore.as_ref().map(|restore| restore.store.url.clone());
    etcd.metadata
        .annotations
        .get_or_insert_default()
        .insert("migration.gardener.cloud/restore-from".into(), "n-1".into());
    let founding = config(&etcd, false);
    assert_eq!(founding.cluster_state, ClusterState::New);
    assert_eq!(url(&founding).as_deref(), Some("file:///var/etcd/local-store/p/backups/n-1"));
    let founded = config(&etcd, true);
    assert_eq!((founded.cluster_state, url(&founded)), (ClusterState::Existing, None));
    // Snapshots of volumes that a workflow made are kept apart from those of the volumes before them.
    let history = |etcd: &Etcd| config(etcd, true).store.and_then(|store| store.history);
    assert_eq!(history(&etcd), None);
    let own = |names: &str| {
        let mut etcd = etcd.clone();
        let annotations = etcd.metadata.annotations.get_or_insert_default();
        annotations.insert("migration.gardener.cloud/own-histories".into(), names.into());
        etcd.spec.volume_claim_template = Some("new".into());
        history(&etcd)
    };
    assert_eq!(own("new"), Some("new".to_owned()));
    assert_eq!(own("old,new"), Some("new".to_owned()));
    assert_eq!(own("old,newer"), None);
    // Members do not start again because of it.
    assert_eq!(render::checksum(&founding), render::checksum(&founded));
    etcd.spec.etcd.quota = Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity("1Gi".into()));
    assert_ne!(render::checksum(&config(&etcd, true)), render::checksum(&founded));
}

#[test]
fn clusters_of_other_volumes_have_another_token() {
    let token = |template: &str| {
        let mut etcd = plain();
        etcd.spec.volume_claim_template = Some(template.into());
        render::config(&etcd, &mk_layout(3, false)).cluster_token
    };
    assert_eq!(token("main"), "0b6b2b2e-5d2c-4f0e-9d9c-1d6f0a8f3c11/main");
    assert_ne!(token("a"), token("b"));
}

#[test]
fn the_configuration_can_be_read_by_agents() {
    for etcd in [plain(), full()] {
        let all = rendered(&etcd, &layout_of(&etcd, 3));
        let text =
            all.iter().find_map(|object| object["data"]["agent.yaml"].as_str()).expect("a configuration");
        let read: Config = serde_json::from_str(text).expect("what an agent reads");
        assert_eq!(read, render::config(&etcd, &layout_of(&etcd, 3)));
    }
}

/// kube-apiserver connects to the gateway of a standby before any member is ready.
#[test]
fn clients_reach_the_gateway_of_a_standby_until_it_has_founded_the_etcd() {
    let is_published = |etcd: &Etcd, standby: bool, founded: bool| {
        let layout = Layout { standby, ..mk_layout(1, founded) };
        let all = render::surroundings(etcd, &layout);
        let name = "main-client";
        let service = all.iter().find(|one| one.object["metadata"]["name"] == name).expect("a Service");
        service.object["spec"]["publishNotReadyAddresses"] == true
    };
    assert!(is_published(&full(), true, false));
    assert!(!is_published(&full(), true, true), "founded");
    assert!(!is_published(&full(), false, false), "no standby");
    assert!(!is_published(&plain(), true, false), "without a gateway nothing takes connections");
}
