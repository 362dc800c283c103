//! Facts from YAML manifests: for a laptop, and to ask before there is a cluster.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use repot_api::gardener::shoot::Shoot;
use repot_apimachinery::value::text_at;
use repot_rules::{
    change::Change,
    facts::{Distances, Facts, Profile, RequiredFacts},
    region_config,
};
use serde_json::Value;

use super::Error;

/// All manifests below a directory, by kind.
#[derive(Debug, Default)]
pub struct Directory {
    objects: Vec<Arc<Value>>,
    distances: Arc<Vec<Distances>>,
}

impl Directory {
    /// Reads every `.yaml`, `.yml` and `.json` file below a directory.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Parse`].
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let mut objects = Vec::new();
        for file in files(dir)? {
            objects.extend(read_manifests(&file)?);
        }
        let mut distances: Vec<Distances> = objects
            .iter()
            .filter(|object| kind(object) == "ConfigMap")
            .filter_map(region_config::read)
            .collect();
        distances.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { objects: objects.into_iter().map(Arc::new).collect(), distances: Arc::new(distances) })
    }

    pub(super) fn gather(&self, needs: &RequiredFacts, change: &Change, facts: Facts) -> Facts {
        let shoots: Vec<&Arc<Value>> = self.of("Shoot").collect();
        let on = |seed: &str| {
            let here = |shoot: &&&Arc<Value>| {
                let shoot = Shoot(shoot);
                shoot.spec_seed() == Some(seed) || shoot.status_seed() == Some(seed)
            };
            shoots.iter().filter(here).count() as u64
        };
        let named = |kind: &'static str, name: &str| {
            self.of(kind).find(|o| text_at(o, "/metadata/name") == Some(name)).cloned()
        };
        let placed = |kind: &'static str, (namespace, name): &(String, String)| {
            let here = |object: &&Arc<Value>| {
                text_at(object, "/metadata/name") == Some(name)
                    && text_at(object, "/metadata/namespace").unwrap_or("default") == namespace
            };
            self.of(kind).find(here).cloned()
        };
        let profile = |profile: &Profile| match profile {
            Profile::Cluster(name) => named("CloudProfile", name),
            Profile::Namespaced(namespace, name) => {
                let found = placed("NamespacedCloudProfile", &(namespace.clone(), name.clone()));
                found.as_deref().and_then(Profile::flattened).map(Arc::new)
            }
        };
        let project = needs.project_of.as_ref().and_then(|namespace| {
            self.of("Project").find(|project| text_at(project, "/spec/namespace") == Some(namespace)).cloned()
        });
        let bastions = needs.bastions_of.iter().flat_map(|(namespace, name)| {
            let here = move |bastion: &&Arc<Value>| {
                text_at(bastion, "/metadata/namespace").unwrap_or("default") == namespace
                    && text_at(bastion, "/spec/shootRef/name") == Some(name)
            };
            self.of("Bastion").filter(here).filter_map(|bastion| text_at(bastion, "/metadata/name"))
        });
        let workflows = needs.hosted_etcd.as_ref().map(|(namespace, _)| {
            let all =
                ["EtcdBackup", "EtcdRestore", "EtcdMigration"].into_iter().flat_map(|kind| self.of(kind));
            all.filter(|one| text_at(one, "/metadata/namespace") == Some(namespace)).cloned().collect()
        });
        let hosted = needs.hosted_etcds_of.iter().flat_map(|namespace| {
            let here = move |object: &&Arc<Value>| {
                text_at(object, "/metadata/namespace").unwrap_or("default") == namespace
            };
            self.of("HostedEtcd").filter(here).cloned()
        });
        Facts {
            seeds: needs.seeds.iter().map(|name| (name.clone(), named("Seed", name))).collect(),
            shoots_on: needs.seeds.iter().map(|name| (name.clone(), on(name))).collect::<BTreeMap<_, _>>(),
            cloud_profile: needs.cloud_profile.as_ref().and_then(profile),
            distances: self.distances.clone(),
            project,
            shoot: needs.shoot.as_ref().and_then(|key| placed("Shoot", key)),
            hosted_etcd: needs.hosted_etcd.as_ref().and_then(|key| placed("HostedEtcd", key)),
            hosted_etcds: hosted.collect(),
            bastions: bastions.map(str::to_owned).collect(),
            workflows: workflows.unwrap_or_default(),
            // Files do not tell what a cluster serves; who writes the subresource shows that there is one.
            binding: change.target.subresource == "binding",
            ..facts
        }
    }

    /// The objects of a kind.
    fn of(&self, wanted: &'static str) -> impl Iterator<Item = &Arc<Value>> {
        self.objects.iter().filter(move |object| kind(object) == wanted)
    }
}

/// Reads the manifests of a file; those of a List one by one.
///
/// # Errors
/// [`Error::Read`], [`Error::Parse`].
pub fn read_manifests(path: &Path) -> Result<Vec<Value>, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let failed = |error: serde_saphyr::Error| {
        let line = error.location().map_or(0, |at| usize::try_from(at.line()).unwrap_or(0));
        Error::Parse { path: path.to_owned(), line }
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(failed)?;
    let mut objects = Vec::new();
    for mut document in documents.into_iter().filter(|document| !document.is_null()) {
        match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => objects.extend(items),
            _ => objects.push(document),
        }
    }
    Ok(objects)
}

fn kind(object: &Value) -> &str {
    text_at(object, "/kind").unwrap_or_default()
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Read { path: dir.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
