//! Which objects a bundle has, and how much of them.

use std::time::Instant;

use kube::api::ListParams;
use repot_api::names::{CORE_GROUP, EXTENSIONS_GROUP, MIGRATION_GROUP, V1ALPHA1};
use repot_apimachinery::value::{at, items_at, text_at};
use serde_json::{Value, json};

use super::{Bundle, left};
use crate::{
    doctor::{
        checks::{API_SERVICE, EVENT, LEASE, MUTATING, VALIDATING, is_our_api_service, is_our_webhook},
        survey::Survey,
    },
    objects::{
        CONTROL_PLANE_MIGRATION, ETCD, ETCD_BACKUP, ETCD_MIGRATION, ETCD_RESTORE, Error, HOSTED_ETCD, Kind,
        SEED, ZONE_ISOLATION,
    },
};

/// Most objects of one kind.
const MOST: usize = 2000;
/// Longest page of a table of ShootStates, in bytes.
const MOST_PAGE: usize = 16 << 20;
/// Tables of objects, which have no payload.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// Where gardenlets renew their Leases.
const SEED_LEASES: &str = "gardener-system-seed-lease";
/// Kinds of Repot that are collected whole.
const WHOLE: [Kind; 7] =
    [CONTROL_PLANE_MIGRATION, ZONE_ISOLATION, HOSTED_ETCD, ETCD_BACKUP, ETCD_RESTORE, ETCD_MIGRATION, ETCD];
/// Kinds of Gardener, of which only conditions and the last operation are collected.
const CONDITIONS: [Kind; 3] = [
    SEED,
    Kind::new(CORE_GROUP, "v1beta1", "BackupBucket", "backupbuckets"),
    Kind::new(EXTENSIONS_GROUP, V1ALPHA1, "BackupBucket", "backupbuckets"),
];
/// Where ShootStates may be served.
const SHOOT_STATES: [Kind; 2] = [
    Kind::new(CORE_GROUP, V1ALPHA1, "ShootState", "shootstates"),
    Kind::new(MIGRATION_GROUP, V1ALPHA1, "ShootState", "shootstates"),
];
/// Kinds of whose objects events are collected from all namespaces.
const EVENTS_OF: [&str; 8] = [
    "ControlPlaneMigration",
    "ZoneIsolation",
    "HostedEtcd",
    "EtcdBackup",
    "EtcdRestore",
    "EtcdMigration",
    "Etcd",
    "Shoot",
];

/// What is kept of an object.
type Keep = fn(Value) -> Option<Value>;

pub(super) async fn collect(survey: &Survey, bundle: &mut Bundle, end: Instant) {
    let everything: Keep = Some;
    for kind in WHOLE.iter().filter(|kind| survey.serves(kind)) {
        list(survey, bundle, end, (kind, survey.namespace.as_deref()), &file(kind, ""), everything).await;
    }
    for kind in CONDITIONS.iter().filter(|kind| survey.serves(kind)) {
        list(survey, bundle, end, (kind, None), &file(kind, ""), |object| Some(state(&object))).await;
    }
    list(survey, bundle, end, (&API_SERVICE, None), &file(&API_SERVICE, ""), |one| {
        Some(one).filter(is_our_api_service)
    })
    .await;
    for kind in [MUTATING, VALIDATING] {
        list(survey, bundle, end, (&kind, None), &file(&kind, ""), |one| Some(one).filter(is_our_webhook))
            .await;
    }
    let namespaces = survey.namespaces.iter().map(String::as_str);
    for namespace in namespaces.chain(survey.serves(&SEED).then_some(SEED_LEASES)) {
        list(survey, bundle, end, (&LEASE, Some(namespace)), &file(&LEASE, namespace), everything).await;
    }
    for namespace in &survey.namespaces {
        list(survey, bundle, end, (&EVENT, Some(namespace)), &file(&EVENT, namespace), everything).await;
    }
    events(survey, bundle, end).await;
    match &survey.pods {
        Ok(pods) => bundle.add_json("objects/pods.json", json!({"items": pods})),
        Err(why) => bundle.leave_out("objects/pods.json", why),
    }
    for kind in SHOOT_STATES.iter().filter(|kind| survey.serves(kind)) {
        shoot_states(survey, bundle, end, kind).await;
    }
}

fn file(kind: &Kind, namespace: &str) -> String {
    let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
    let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("objects/{namespace}{}{group}.json", kind.plural)
}

/// Conditions and the last operation, without a spec.
fn state(object: &Value) -> Value {
    let status = |field: &str| at(object, &format!("/status/{field}")).cloned().unwrap_or_default();
    json!({
        "metadata": {"name": text_at(object, "/metadata/name"), "creationTimestamp": text_at(object, "/metadata/creationTimestamp")},
        "status": {
            "conditions": status("conditions"), "lastOperation": status("lastOperation"), "lastError": status("lastError"),
            "gardener": status("gardener"),
        },
    })
}

async fn list(
    survey: &Survey,
    bundle: &mut Bundle,
    end: Instant,
    (kind, namespace): (&Kind, Option<&str>),
    path: &str,
    keep: Keep,
) {
    let Some(left) = left(end) else { return bundle.leave_out(path, "no time was left") };
    let found = survey.objects.list(kind, namespace, ListParams::default(), MOST);
    match tokio::time::timeout(left, found).await {
        Ok(Ok(found)) => {
            let items: Vec<Value> = found.items.into_iter().filter_map(keep).collect();
            bundle.add_json(path, json!({"items": items, "isCut": found.is_cut}));
        }
        Ok(Err(error)) => bundle.leave_out(path, &error.to_string()),
        Err(_) => bundle.leave_out(path, "no time was left"),
    }
}

/// Events about objects of Repot and about Shoots, of all namespaces.
async fn events(survey: &Survey, bundle: &mut Bundle, end: Instant) {
    let (path, mut all) = ("objects/events-of-kinds.json", Vec::new());
    for kind in EVENTS_OF {
        let Some(left) = left(end) else { return bundle.leave_out(path, "no time was left") };
        let params = ListParams::default().fields(&format!("involvedObject.kind={kind}"));
        let found = survey.objects.list(&EVENT, survey.namespace.as_deref(), params, MOST);
        match tokio::time::timeout(left, found).await {
            Ok(Ok(found)) => all.extend(found.items),
            Ok(Err(error)) => bundle.leave_out(&format!("{path} of {kind}"), &error.to_string()),
            Err(_) => bundle.leave_out(&format!("{path} of {kind}"), "no time was left"),
        }
    }
    bundle.add_json(path, json!({"items": all}));
}

/// Names, metadata and sizes, by the table that kubectl prints: the API server reads no payload for it.
async fn shoot_states(survey: &Survey, bundle: &mut Bundle, end: Instant, kind: &Kind) {
    let path = file(kind, "");
    let (mut rows, mut token) = (Vec::new(), String::new());
    while rows.len() < MOST {
        let Some(left) = left(end) else { return bundle.leave_out(&path, "no time was left") };
        let url = format!("{}?limit=500&continue={token}", kind.path());
        match tokio::time::timeout(left, survey.objects.raw(&url, TABLE, MOST_PAGE)).await {
            Ok(Ok((_, table))) => {
                rows.extend(table_rows(&table));
                token = text_at(&table, "/metadata/continue").unwrap_or_default().to_owned();
            }
            Ok(Err(Error::NotServed { .. })) => return,
            Ok(Err(error)) => return bundle.leave_out(&path, &error.to_string()),
            Err(_) => return bundle.leave_out(&path, "no time was left"),
        }
        // It goes into a URL as it is.
        if token.is_empty() || !token.chars().all(|c| c.is_ascii_alphanumeric() || "-_=.~".contains(c)) {
            break;
        }
    }
    bundle.add_json(&path, json!({"items": rows}));
}

/// Cells by the names of their columns, and metadata. Nothing else of the object is taken, whatever the server sends.
fn table_rows(table: &Value) -> Vec<Value> {
    let names = items_at(table, "/columnDefinitions")
        .iter()
        .map(|column| text_at(column, "/name").unwrap_or_default());
    let names: Vec<&str> = names.collect();
    let row = |row: &Value| {
        let cells =
            names.iter().zip(items_at(row, "/cells")).map(|(name, cell)| ((*name).to_owned(), cell.clone()));
        let cells: serde_json::Map<String, Value> = cells.collect();
        json!({"cells": cells, "metadata": at(row, "/object/metadata")})
    };
    items_at(table, "/rows").iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_tables_have_no_payload() {
        let table = json!({
            "columnDefinitions": [{"name": "Name"}, {"name": "Size"}],
            "rows": [{"cells": ["alpha", "1.5 MiB"], "object": {"metadata": {"name": "alpha"}, "spec": {"secret": "x"}}}],
        });
        assert_eq!(
            table_rows(&table),
            [json!({"cells": {"Name": "alpha", "Size": "1.5 MiB"}, "metadata": {"name": "alpha"}})]
        );
    }

    #[test]
    fn objects_of_gardener_lose_their_spec() {
        let seed = json!({"metadata": {"name": "a", "annotations": {"x": "y"}}, "spec": {"backup": {}}, "status": {"conditions": []}});
        let kept = state(&seed);
        assert!(kept.get("spec").is_none() && kept["metadata"].get("annotations").is_none());
        assert_eq!(kept["status"]["conditions"], json!([]));
    }

    #[test]
    fn no_secret_and_no_config_map_is_collected() {
        let all = WHOLE.iter().chain(&CONDITIONS).chain(&SHOOT_STATES).chain([
            &API_SERVICE,
            &LEASE,
            &EVENT,
            &MUTATING,
            &VALIDATING,
        ]);
        assert!(all.clone().all(|kind| kind.plural != "secrets" && kind.plural != "configmaps"));
        assert_eq!(file(&EVENT, "repot-system"), "objects/repot-system/events.json");
    }
}
