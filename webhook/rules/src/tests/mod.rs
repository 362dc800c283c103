//! Tables of changes, and properties of all rules.

mod conditions;
mod fill;
mod forced;
mod isolation;
mod leaving;
mod live;
mod matrix;
mod migration;
mod properties;
mod state;
mod table;

use std::{collections::BTreeMap, sync::Arc};

use repot_api::names::{CORE_GROUP, SEED_USER_PREFIX, SEEDS_GROUP};
use serde_json::{Value, json};

use crate::{
    change::{Change, Operation, Target, User},
    facts::{Distances, Facts, Settings},
    finding::{Finding, Verdict, apply},
    judge,
    opening::{self, Projection},
    watch::{FailurePolicy, SEED_CHANGE, WATCHES, Watch},
};

/// A Shoot that could move anywhere.
fn mk_shoot() -> Value {
    json!({
        "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
        "metadata": {"name": "s", "namespace": "garden-p", "uid": "u"},
        "spec": {
            "seedName": "a", "region": "eu", "cloudProfile": {"name": "profile"},
            "controlPlane": {"highAvailability": {"failureTolerance": {"type": "zone"}}},
            "provider": {"type": "local", "workers": [{"name": "w", "zones": ["eu-1a", "eu-1b"]}]},
        },
        "status": {"seedName": "a", "lastOperation": {"type": "Reconcile", "state": "Succeeded"}},
    })
}

fn mk_seed(name: &str) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    json!({
        "metadata": {"name": name, "generation": 2},
        "spec": {
            "provider": {"type": "local", "region": "eu", "zones": ["eu-1a", "eu-1b", "eu-1c"]}, "backup": {},
            "dns": {"internal": {"domain": "internal.example.com"}, "defaults": [{"domain": "example.com"}]},
            "networks": {"nodes": "fd00:1::/64", "pods": "fd00:2::/64", "services": "fd00:3::/64"},
        },
        "status": {
            "observedGeneration": 2, "gardener": {"version": "v1.150.0"}, "allocatable": {"shoots": "3"},
            "conditions": [
                condition("GardenletReady"), condition("SeedSystemComponentsHealthy"), condition("BackupBucketsReady"),
            ],
        },
    })
}

fn mk_facts() -> Facts {
    let seed = |name: &str| (name.to_owned(), Some(Arc::new(mk_seed(name))));
    let profile = json!({"spec": {"regions": [
        {"name": "eu", "zones": [{"name": "eu-1a", "id": "euc1-az1"}, {"name": "eu-1b"}]},
    ]}});
    let way =
        |from: &str, to: &str, distance| (from.to_owned(), Ok(BTreeMap::from([(to.to_owned(), distance)])));
    let distances = Distances {
        name: "regions".into(),
        profiles: vec!["profile".into()],
        thresholds: [Some("180".into()), None],
        from: BTreeMap::from([way("eu", "us", 180), way("us", "eu", 181)]),
    };
    Facts {
        now: "2026-11-21T12:00:00Z".into(),
        seeds: BTreeMap::from([seed("a"), seed("b"), seed("c")]),
        cloud_profile: Some(Arc::new(profile)),
        distances: Arc::new(vec![distances]),
        may_force: true,
        settings: Arc::new(Settings {
            controllers: vec!["system:serviceaccount:repot-system:*".into()],
            operator_groups: vec!["system:masters".into()],
            ..Settings::default()
        }),
        ..Facts::default()
    }
}

/// Facts in which a seed is different.
fn with_seed(name: &str, change: impl FnOnce(&mut Value)) -> Facts {
    let mut facts = mk_facts();
    let mut seed = mk_seed(name);
    change(&mut seed);
    facts.seeds.insert(name.to_owned(), Some(Arc::new(seed)));
    facts
}

fn person(name: &str) -> User {
    User { name: name.to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() }
}

fn gardenlet(seed: &str) -> User {
    User {
        name: format!("{SEED_USER_PREFIX}{seed}"),
        groups: vec![SEEDS_GROUP.to_owned()],
        ..User::default()
    }
}

fn of(group: &str, resource: &str, operation: Operation, old: Value, new: Value) -> Change {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let target = Target {
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: "garden-p".to_owned(),
        name: "s".to_owned(),
    };
    Change { operation, target, user: person("alice"), old, new }
}

/// An update of a Shoot, from the fine one changed by `before` to the same changed by `then`.
fn update(before: impl FnOnce(&mut Value), then: impl FnOnce(&mut Value)) -> Change {
    let mut old = mk_shoot();
    before(&mut old);
    let mut new = old.clone();
    then(&mut new);
    of(CORE_GROUP, "shoots", Operation::Update, old, new)
}

fn rests(_: &mut Value) {}

/// To seed b.
fn moves(shoot: &mut Value) {
    shoot["spec"]["seedName"] = json!("b");
}

fn annotate(shoot: &mut Value, key: &str, value: &str) {
    shoot["metadata"]["annotations"][key] = json!(value);
}

/// Between seeds a and b, in the middle of a live migration that has come so far.
fn moving_live(shoot: &mut Value, conditions: &Value) {
    moves(shoot);
    annotate(shoot, "migration.gardener.cloud/live-migrate", "true");
    shoot["status"]["lastOperation"] = json!({"type": "LiveMigrate", "state": "Processing"});
    shoot["status"]["liveMigration"] = json!({"conditions": conditions});
}

/// Webhooks that are asked about a change: their rules match, and so do their conditions.
fn asked(change: &Change, mutating: bool) -> impl Iterator<Item = &'static Watch> + use<'_> {
    let all = WATCHES.iter().copied().filter(move |watch| watch.mutating == mutating);
    all.filter(|watch| is_registered(watch, change) && conditions::hold(watch, change))
}

fn is_registered(watch: &Watch, change: &Change) -> bool {
    let target = &change.target;
    let resource = match target.subresource.as_str() {
        "" => target.resource.clone(),
        sub => format!("{}/{sub}", target.resource),
    };
    let fits = |m: &crate::watch::Match| {
        m.groups.contains(&target.group.as_str())
            && m.resources.contains(&resource.as_str())
            && m.operations.contains(&change.operation.as_str())
    };
    watch.matches.iter().any(fits)
}

/// What the rules say, which is the same of objects that were opened only as far as they look.
fn judged(change: &Change, facts: &Facts) -> Vec<Finding> {
    let judge = |watch| {
        let findings = judge::validate(watch, change, facts);
        assert_eq!(judge::validate(watch, &opened(change, watch), facts), findings, "a rule looks further");
        findings
    };
    let mut findings: Vec<Finding> = asked(change, false).flat_map(judge).collect();
    findings.dedup();
    findings
}

fn opened(change: &Change, watch: &Watch) -> Change {
    let cut = |object: &Value| opening::cut(object, Projection::of(watch));
    Change { old: cut(&change.old), new: cut(&change.new), ..change.clone() }
}

/// Names of the rules that refuse, in order, each once.
fn refusals(change: &Change, facts: &Facts) -> Vec<&'static str> {
    named(change, facts, Verdict::Refuse)
}

fn warnings(change: &Change, facts: &Facts) -> Vec<&'static str> {
    named(change, facts, Verdict::Warn)
}

fn named(change: &Change, facts: &Facts, verdict: Verdict) -> Vec<&'static str> {
    let findings = judged(change, facts).into_iter();
    let mut names: Vec<_> = findings.filter(|f| f.verdict == verdict).map(|f| f.rule).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The object as the mutating rules leave it.
fn filled(change: &Change, facts: &Facts) -> Value {
    let mut new = change.new.clone();
    for watch in asked(change, true) {
        let mut changed = change.clone();
        let patch = judge::mutate(watch, &mut changed, facts);
        assert_eq!(judge::mutate(watch, &mut opened(change, watch), facts), patch, "a rule looks further");
        apply(&mut new, &patch);
        let mut patched = change.new.clone();
        apply(&mut patched, &patch);
        assert_eq!(changed.new, patched, "the object and the patch differ");
    }
    new
}

/// Accepted without a word of refusal.
#[track_caller]
fn accepts(change: &Change, facts: &Facts) {
    let refused =
        judged(change, facts).into_iter().filter(|f| f.verdict == Verdict::Refuse).collect::<Vec<_>>();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Refused by exactly these rules, each of which says where, why and what to do.
#[track_caller]
fn rejects(change: &Change, facts: &Facts, rules: &[&str]) {
    let mut expected = rules.to_vec();
    expected.sort_unstable();
    assert_eq!(refusals(change, facts), expected);
    for finding in judged(change, facts) {
        assert!(
            !finding.field.is_empty() && !finding.reason.is_empty() && !finding.advice.is_empty(),
            "{finding:?}"
        );
    }
}
