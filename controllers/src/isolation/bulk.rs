//! One zone of many Shoots: how far each of them is, and which come next.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::{
    gardener::shoot,
    names::{CORE_GROUP, ISOLATED_ZONE},
};
use repot_rules::zones;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::ZoneIsolation;
use crate::{
    errors::{causes, is_conflict, is_forbidden, is_not_found},
    migration::{Error, Result, api::Shoot},
};

/// Which way a zone goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ZoneTask {
    /// It is left.
    Isolate,
    /// It is used again.
    UseAgain,
}

/// Namespace and name of a Shoot.
pub type Key = (String, String);

/// How far a Shoot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "message")]
pub enum Progress {
    /// Nothing was asked for yet.
    Waiting,
    /// It is on its way: what it waits for.
    Working(String),
    /// A step takes longer than `spec.stepTimeout`, and is worked on all the same: what it waits for.
    Late(String),
    /// It was refused, or is not possible: why.
    Refused(String),
    /// Its zone is as it was asked for.
    Done,
    /// No pool of it uses the zone.
    Elsewhere,
}

impl Progress {
    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Done | Self::Elsewhere)
    }

    /// Whether it goes on by itself.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        matches!(self, Self::Working(_) | Self::Late(_))
    }
}

/// What is to be done with a zone of some Shoots.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// The provider's ID of the zone.
    pub zone: String,
    /// Which way it goes.
    pub task: ZoneTask,
    /// How many Shoots may be on their way at once.
    pub most: usize,
    /// No other one begins after so many that were refused or are late.
    pub failures: usize,
}

/// Shoots and isolations, as they are now.
pub struct Seen {
    shoots: Vec<SeenShoot>,
    isolations: Vec<ZoneIsolation>,
}

struct SeenShoot {
    shoot: Shoot,
    /// Whether it is known that no pool uses the zone.
    is_elsewhere: bool,
}

/// What a run remembers.
#[derive(Debug, Default)]
pub struct Memory {
    /// Why Shoots were refused.
    pub refused: BTreeMap<Key, String>,
    /// Shoots that were on their way or done.
    begun: BTreeSet<Key>,
}

impl Bulk {
    /// How far each Shoot is.
    #[must_use]
    pub fn progress(&self, seen: &Seen, memory: &mut Memory) -> BTreeMap<Key, Progress> {
        let is_kept = |seen: &&SeenShoot| seen.shoot.metadata.deletion_timestamp.is_none();
        let mut all = BTreeMap::new();
        for one in seen.shoots.iter().filter(is_kept) {
            let key = (one.shoot.namespace().unwrap_or_default(), one.shoot.name_any());
            let progress = match memory.refused.get(&key) {
                Some(why) => Progress::Refused(why.clone()),
                None => self.of_seen(one, &seen.isolations),
            };
            // Nobody is overruled who has changed it since.
            let progress = match progress {
                Progress::Waiting if memory.begun.contains(&key) => {
                    Progress::Refused("somebody has changed its annotation since".to_owned())
                }
                progress => progress,
            };
            if progress.is_under_way() || progress == Progress::Done {
                memory.begun.insert(key.clone());
            }
            all.insert(key, progress);
        }
        all
    }

    fn of_seen(&self, seen: &SeenShoot, isolations: &[ZoneIsolation]) -> Progress {
        match self.of_shoot(&seen.shoot, isolations) {
            Progress::Waiting if seen.is_elsewhere && self.task == ZoneTask::Isolate => Progress::Elsewhere,
            progress => progress,
        }
    }

    fn of_shoot(&self, shoot: &Shoot, isolations: &[ZoneIsolation]) -> Progress {
        let is_own = |one: &&ZoneIsolation| {
            one.namespace() == shoot.namespace() && one.is_of(shoot) && one.spec.zone == self.zone
        };
        let open = isolations.iter().filter(is_own).filter(|one| !one.has_ended());
        let last =
            open.max_by_key(|one| (one.creation_timestamp().map(|time| time.0.to_string()), one.uid()));
        let zone = shoot.annotations().get(ISOLATED_ZONE);
        match (self.task, zone) {
            (ZoneTask::Isolate, None) => Progress::Waiting,
            (_, Some(other)) if *other != self.zone => match self.task {
                ZoneTask::Isolate => Progress::Refused(format!("zone {other} is isolated")),
                ZoneTask::UseAgain => Progress::Done,
            },
            (ZoneTask::Isolate, Some(_)) => match last {
                Some(one) if one.lasts() => Progress::Done,
                Some(one) => on_its_way(one),
                None => Progress::Working("its ZoneIsolation is being created".to_owned()),
            },
            (ZoneTask::UseAgain, Some(_)) => Progress::Waiting,
            (ZoneTask::UseAgain, None) => last.map_or(Progress::Done, on_its_way),
        }
    }

    /// The Shoots that come next.
    #[must_use]
    pub fn next(&self, all: &BTreeMap<Key, Progress>) -> Vec<Key> {
        let under_way = all.values().filter(|one| one.is_under_way()).count();
        if self.has_stopped(all) {
            return Vec::new();
        }
        let waiting = all.iter().filter(|(_, one)| **one == Progress::Waiting).map(|(key, _)| key.clone());
        waiting.take(self.most.saturating_sub(under_way)).collect()
    }

    /// Whether so many were refused or are late that no other one begins.
    #[must_use]
    pub fn has_stopped(&self, all: &BTreeMap<Key, Progress>) -> bool {
        let is_failure = |one: &&Progress| matches!(one, Progress::Late(_) | Progress::Refused(_));
        all.values().filter(is_failure).count() >= self.failures
    }

    /// Reads the Shoots of these labels, and all isolations; of one namespace, or of all.
    ///
    /// # Errors
    /// Where the garden does not answer, or refuses.
    pub async fn read(&self, garden: &Client, namespace: Option<&str>, selector: &str) -> Result<Seen> {
        let params = ListParams::default().labels(selector);
        let shoots = dynamic(garden, namespace, "Shoot").list(&params).await;
        let isolations = typed(garden, namespace).list(&ListParams::default()).await;
        let profiles = match dynamic(garden, None, "CloudProfile").list(&ListParams::default()).await {
            // Without the right to read them it is not known which Shoots use the zone, and the webhooks judge that.
            Err(error) if is_forbidden(&error) || is_not_found(&error) => Vec::new(),
            found => found.map_err(Error::read("CloudProfiles"))?.items,
        };
        let profiles: Vec<Value> = profiles.iter().filter_map(|one| serde_json::to_value(one).ok()).collect();
        let shoots = shoots.map_err(Error::read("Shoots"))?.items.into_iter();
        let shoots: Result<Vec<SeenShoot>> = shoots.map(|one| self.seen(&one, &profiles)).collect();
        Ok(Seen { shoots: shoots?, isolations: isolations.map_err(Error::read("ZoneIsolations"))?.items })
    }

    fn seen(&self, object: &DynamicObject, profiles: &[Value]) -> Result<SeenShoot> {
        let form = |source| Error::Form { what: format!("Shoot {}", object.name_any()), source };
        let value = serde_json::to_value(object).map_err(form)?;
        let shoot = Shoot::deserialize(&value).map_err(form)?;
        let profile = shoot.cloud_profile();
        let profile = profiles.iter().find(|one| one["metadata"]["name"].as_str() == profile);
        let code = zones::code(&value, profile, &self.zone);
        let is_elsewhere = code.is_some_and(|code| !shoot::Shoot(&value).worker_zones().contains(&*code));
        Ok(SeenShoot { shoot, is_elsewhere })
    }

    /// Sets the annotation of a Shoot, or takes it away; gives why the garden refuses that. What somebody has changed meanwhile is not
    /// overwritten, and what was not answered is tried again at the next look.
    pub async fn begin(&self, garden: &Client, seen: &Seen, (namespace, name): &Key) -> Option<String> {
        let is_it = |one: &&SeenShoot| {
            one.shoot.namespace().as_ref() == Some(namespace) && one.shoot.name_any() == *name
        };
        let shoot = &seen.shoots.iter().find(is_it)?.shoot;
        let zone = (self.task == ZoneTask::Isolate).then_some(&self.zone);
        let patch = json!({"metadata": {
            "resourceVersion": shoot.resource_version(), "annotations": {ISOLATED_ZONE: zone},
        }});
        let all = Api::<Shoot>::namespaced(garden.clone(), namespace);
        let params = PatchParams { field_manager: Some("repot-cli".to_owned()), ..PatchParams::default() };
        match all.patch(name, &params, &Patch::Merge(patch)).await {
            Err(error @ kube::Error::Api(_)) if !is_conflict(&error) => Some(causes(&error).to_string()),
            Ok(_) | Err(_) => None,
        }
    }
}

fn dynamic(garden: &Client, namespace: Option<&str>, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(CORE_GROUP, "v1beta1", kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(garden.clone(), namespace, &kind),
        None => Api::all_with(garden.clone(), &kind),
    }
}

fn typed(garden: &Client, namespace: Option<&str>) -> Api<ZoneIsolation> {
    match namespace {
        Some(namespace) => Api::namespaced(garden.clone(), namespace),
        None => Api::all(garden.clone()),
    }
}

fn on_its_way(isolation: &ZoneIsolation) -> Progress {
    let text = |field: &str| isolation.status.get(field).and_then(|value| value.as_str()).unwrap_or_default();
    match text("status") {
        "Failed" => Progress::Late(text("message").to_owned()),
        _ => Progress::Working(text("message").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(task: ZoneTask) -> Bulk {
        Bulk { zone: "z1".to_owned(), task, most: 2, failures: 2 }
    }

    fn shoot(name: &str, zone: Option<&str>) -> Shoot {
        let annotations: Value = zone.map_or(json!({}), |zone| json!({ISOLATED_ZONE: zone}));
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "annotations": annotations},
        }))
        .expect("a Shoot")
    }

    fn isolation(shoot: &str, phase: &str, status: &str) -> ZoneIsolation {
        serde_json::from_value(json!({
            "metadata": {"name": format!("{shoot}-1"), "namespace": "n", "uid": "i"},
            "spec": {"shootRef": {"name": shoot}, "isolatedZoneID": "z1"},
            "status": {"phase": phase, "status": status, "message": "waits"},
        }))
        .expect("an isolation")
    }

    fn progress(task: ZoneTask, shoot: Shoot, isolations: Vec<ZoneIsolation>) -> Progress {
        let mut all = bulk(task).progress(&seen(shoot, isolations), &mut Memory::default());
        all.pop_first().expect("a Shoot").1
    }

    fn seen(shoot: Shoot, isolations: Vec<ZoneIsolation>) -> Seen {
        Seen { shoots: vec![SeenShoot { shoot, is_elsewhere: false }], isolations }
    }

    #[test]
    fn shoot_that_somebody_calls_off_is_not_begun_again() {
        let (bulk, mut memory) = (bulk(ZoneTask::Isolate), Memory::default());
        let mut look = |zone| bulk.progress(&seen(shoot("s", zone), Vec::new()), &mut memory).pop_first();
        assert!(look(None).is_some_and(|(_, found)| found == Progress::Waiting));
        assert!(look(Some("z1")).is_some_and(|(_, found)| found.is_under_way()));
        assert!(look(None).is_some_and(|(_, found)| matches!(found, Progress::Refused(_))));
    }

    #[test]
    fn shoot_without_a_pool_in_the_zone_is_left_alone() {
        let elsewhere = SeenShoot { shoot: shoot("s", None), is_elsewhere: true };
        let seen = Seen { shoots: vec![elsewhere], isolations: Vec::new() };
        let all = bulk(ZoneTask::Isolate).progress(&seen, &mut Memory::default());
        assert!(all.values().all(|one| *one == Progress::Elsewhere && one.is_settled()));
        assert_eq!(bulk(ZoneTask::Isolate).next(&all).len(), 0);
    }

    #[test]
    fn shoot_is_done_when_its_isolation_lasts_and_again_when_none_is_open() {
        use ZoneTask::{Isolate, UseAgain};
        let waits = || "waits".to_owned();
        let of = |task, zone, all| progress(task, shoot("s", zone), all);
        assert_eq!(of(Isolate, None, vec![]), Progress::Waiting);
        assert!(matches!(of(Isolate, Some("z1"), vec![]), Progress::Working(_)));
        let open = |phase, status| vec![isolation("s", phase, status)];
        assert_eq!(of(Isolate, Some("z1"), open("Failover", "InProgress")), Progress::Working(waits()));
        assert_eq!(of(Isolate, Some("z1"), open("Failover", "Failed")), Progress::Late(waits()));
        assert_eq!(of(Isolate, Some("z1"), open("Failover", "Done")), Progress::Done);
        assert_eq!(of(Isolate, Some("z2"), vec![]), Progress::Refused("zone z2 is isolated".to_owned()));
        assert_eq!(of(UseAgain, Some("z1"), open("Failover", "Done")), Progress::Waiting);
        assert_eq!(of(UseAgain, None, open("Failback", "InProgress")), Progress::Working(waits()));
        assert_eq!(of(UseAgain, None, vec![]), Progress::Done);
        assert_eq!(of(UseAgain, Some("z2"), vec![]), Progress::Done);
        // One of another Shoot says nothing.
        assert_eq!(of(UseAgain, None, vec![isolation("other", "Failback", "InProgress")]), Progress::Done);
    }

    #[test]
    fn so_many_at_once_and_none_after_failures() {
        let all = |states: &[Progress]| -> BTreeMap<Key, Progress> {
            let key = |at: usize| ("n".to_owned(), at.to_string());
            states.iter().enumerate().map(|(at, state)| (key(at), state.clone())).collect()
        };
        use Progress::{Done, Late, Refused, Waiting, Working};
        let (working, late) = (Working(String::new()), Late(String::new()));
        let count = |states: &[Progress]| bulk(ZoneTask::Isolate).next(&all(states)).len();
        assert_eq!(count(&[Waiting, Waiting, Waiting]), 2);
        assert_eq!(count(&[Done, working.clone(), Waiting, Waiting]), 1);
        assert_eq!(count(&[late.clone(), working, Waiting]), 0);
        assert_eq!(count(&[late.clone(), Waiting]), 1);
        assert_eq!(count(&[late, Refused(String::new()), Done, Waiting]), 0);
    }
}
