//! What is served: the install table. A new kind is a types file in the `api` crate, a file here with its [`Strategy`], and a
//! line in the table.

mod control_plane_migration;
mod etcd_backup;
mod etcd_migration;
mod etcd_restore;
mod hosted_etcd;
mod shoot_state;
pub mod strategy;
mod zone_isolation;

use repot_api::names;

use self::strategy::Strategy;
use crate::resource::{GroupResource, Resource};

/// Which kinds a server serves: those of the cluster that it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// Those of a garden.
    Garden,
    /// Those of a seed, or of any cluster that hosts control planes.
    Seed,
    /// All.
    All,
}

/// The install table: where each kind belongs, and its strategy.
const KINDS: &[(Serve, &Strategy)] = &[
    (Serve::Garden, &shoot_state::STRATEGY),
    (Serve::Garden, &control_plane_migration::STRATEGY),
    (Serve::Garden, &zone_isolation::STRATEGY),
    (Serve::Seed, &hosted_etcd::STRATEGY),
    (Serve::Seed, &etcd_backup::STRATEGY),
    (Serve::Seed, &etcd_restore::STRATEGY),
    (Serve::Seed, &etcd_migration::STRATEGY),
];

/// The resources that a server serves. `shootstate_group`: where ShootStates are served, which is not the paper's group where
/// somebody else serves that resource name there.
#[must_use]
pub fn resources(serve: Serve, shootstate_group: &str) -> Vec<Resource> {
    let served = |(place, _): &&(Serve, &Strategy)| serve == Serve::All || *place == serve;
    let resource = |(_, strategy): &(Serve, &'static Strategy)| {
        let group = if is_shoot_state(strategy) { shootstate_group } else { strategy.group };
        Resource {
            name: GroupResource { group: group.to_owned(), resource: strategy.kind.plural.to_owned() },
            version: names::V1ALPHA1.to_owned(),
            kind: strategy.kind,
            strategy,
        }
    };
    KINDS.iter().filter(served).map(resource).collect()
}

fn is_shoot_state(strategy: &Strategy) -> bool {
    std::ptr::eq(strategy, &shoot_state::STRATEGY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(serve: Serve, group: &str) -> Vec<String> {
        resources(serve, group).iter().map(|resource| resource.name.to_string()).collect()
    }

    #[test]
    fn each_place_has_its_kinds() {
        let seed = [
            "hostedetcds.migration.gardener.cloud",
            "etcdbackups.migration.gardener.cloud",
            "etcdrestores.migration.gardener.cloud",
            "etcdmigrations.migration.gardener.cloud",
        ];
        assert_eq!(served(Serve::Seed, names::CORE_GROUP), seed);
        let migrations = "controlplanemigrations.migration.gardener.cloud";
        let isolations = "zoneisolations.migration.gardener.cloud";
        let garden = ["shootstates.core.gardener.cloud", migrations, isolations];
        assert_eq!(served(Serve::Garden, names::CORE_GROUP), garden);
        let garden = ["shootstates.migration.gardener.cloud", migrations, isolations];
        assert_eq!(served(Serve::Garden, names::MIGRATION_GROUP), garden);
        let all = served(Serve::All, names::MIGRATION_GROUP);
        assert_eq!((all.len(), all[0].as_str()), (7, "shootstates.migration.gardener.cloud"));
    }

    #[test]
    fn no_name_stands_for_two_kinds() {
        let all = resources(Serve::All, names::CORE_GROUP);
        let mut seen = std::collections::BTreeSet::new();
        for kind in all.iter().map(|resource| resource.kind) {
            let names = kind.short_names.iter().chain([&kind.plural, &kind.singular, &kind.kind]);
            assert!(names.into_iter().all(|name| seen.insert(*name)), "{} shares a name", kind.kind);
        }
    }

    /// Everything in `deploy/`, document by document.
    fn deployed(part: &str) -> Vec<serde_json::Value> {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(part);
        let files = std::fs::read_dir(dir).expect("a directory").map(|file| file.expect("a file").path());
        // What is for one namespace lies in a directory of its own.
        let files = files.filter(|path| path.is_file());
        let read = |file| std::fs::read_to_string(file).expect("text");
        let parse = |text: &str| serde_saphyr::from_str(text).expect("YAML");
        files.map(read).flat_map(|text| text.split("\n---\n").map(parse).collect::<Vec<_>>()).collect()
    }

    fn holds(list: &serde_json::Value, value: &str) -> bool {
        list.as_array().is_some_and(|list| list.iter().any(|item| item == value))
    }

    #[test]
    fn every_kind_has_its_goldens_its_permissions_and_its_registration() {
        let goldens = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("api/tests/goldens");
        let (roles, services) = (deployed("rbac"), deployed("apiservices"));
        let rules: Vec<_> =
            roles.iter().filter_map(|role| role["rules"].as_array()).flatten().cloned().collect();
        let allowed = |group: &str, resource: &str, verb: &str| {
            let fits = |rule: &&serde_json::Value| {
                holds(&rule["apiGroups"], group)
                    && holds(&rule["resources"], resource)
                    && holds(&rule["verbs"], verb)
            };
            rules.iter().any(|rule| fits(&rule))
        };
        for group in [names::CORE_GROUP, names::MIGRATION_GROUP] {
            for Resource { name, version, kind, .. } in resources(Serve::All, group) {
                for golden in ["rests", "openapi"] {
                    let file = goldens.join(format!("{}.{golden}.json", kind.plural));
                    assert!(file.is_file(), "{} is missing", file.display());
                }
                for verb in
                    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
                {
                    assert!(allowed(&name.group, kind.plural, verb), "nobody may {verb} {name}");
                }
                let status = format!("{}/status", kind.plural);
                for verb in ["get", "patch", "update"] {
                    assert_eq!(allowed(&name.group, &status, verb), kind.has_status(), "{verb} {status}");
                }
                let registers = |service: &&serde_json::Value| {
                    service["spec"]["group"] == name.group && service["spec"]["version"] == version
                };
                assert!(services.iter().any(|service| registers(&service)), "{name} is not registered");
            }
        }
    }

    #[test]
    fn columns_and_selectable_fields_are_there() {
        for resource in resources(Serve::All, names::CORE_GROUP) {
            let (kind, empty) = (resource.kind, repot_apimachinery::json::Node::object());
            assert_eq!((kind.cells)(&empty, 0).len(), kind.columns.len(), "{}", kind.kind);
            for path in kind.selectable {
                let at =
                    path.split('.').try_fold(kind.schema, |schema, field| Some(schema.field(field)?.schema));
                assert!(at.is_some(), "{} has no {path}", kind.kind);
            }
        }
    }
}
