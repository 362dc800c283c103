//! Preflight and webhooks agree. Cases are all combinations of states of the Shoot, of its seeds and of the garden. Which webhooks
//! are asked is decided by their match conditions, evaluated as an API server does it.

use super::*;
use crate::preflight;

type Edit<T> = (&'static str, fn(&mut T));

const SHOOTS: &[Edit<Value>] = &[
    ("rests", |_| ()),
    ("not created", |shoot| shoot["status"] = json!({})),
    ("deleted", |shoot| shoot["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
    ("simple", |shoot| shoot["spec"]["controlPlane"] = Value::Null),
    ("asleep", |shoot| shoot["spec"]["hibernation"]["enabled"] = json!(true)),
    ("unobserved", |shoot| {
        shoot["metadata"]["generation"] = json!(7);
        shoot["status"]["observedGeneration"] = json!(6);
    }),
    ("isolated", |shoot| annotate(shoot, "shoot.gardener.cloud/isolated-zone", "euc1-az1")),
    ("rotating", |shoot| {
        shoot["status"]["credentials"]["rotation"]["serviceAccountKey"]["phase"] = json!("Preparing")
    }),
    ("leftover", |shoot| annotate(shoot, "migration.gardener.cloud/force-shrink-etcd", "true")),
    ("busy", |shoot| annotate(shoot, "gardener.cloud/operation", "rotate-ssh-keypair")),
    ("unreadable", |shoot| annotate(shoot, "migration.gardener.cloud/live-migrate", "perhaps")),
    ("distance allowed", |shoot| annotate(shoot, "migration.gardener.cloud/allow-distant-regions", "true")),
    ("pinned", |shoot| shoot["spec"]["controlPlane"]["zones"] = json!(["eu-1x"])),
    ("migrating", |shoot| shoot["status"]["lastOperation"] = json!({"type": "Migrate", "state": "Error"})),
    ("live to c", |shoot| {
        moving_live(shoot, &json!([]));
        shoot["spec"]["seedName"] = json!("c");
    }),
    ("asked for before", |shoot| {
        annotate(shoot, "migration.gardener.cloud/requested-at", "2026-01-01T00:00:00Z")
    }),
];

const SEEDS: &[Edit<Facts>] = &[
    ("fine", |_| ()),
    ("source dead", |facts| {
        edit(facts, "a", |seed| seed["status"]["conditions"][0]["status"] = json!("Unknown"))
    }),
    ("source gone", |facts| _ = facts.seeds.insert("a".into(), None)),
    ("destination dead", |facts| edit(facts, "b", |seed| seed["status"]["conditions"] = json!([]))),
    ("destination gone", |facts| _ = facts.seeds.insert("b".into(), None)),
    ("stopped", |facts| {
        edit(facts, "b", |seed| {
            seed["metadata"]["annotations"] =
                json!({"shoot.gardener.cloud/emergency-stop-reconciliations": "true"});
        });
    }),
    ("far", |facts| edit(facts, "b", |seed| seed["spec"]["provider"]["region"] = json!("us"))),
    ("too far", |facts| edit(facts, "b", |seed| seed["spec"]["provider"]["region"] = json!("mars"))),
    ("tainted", |facts| edit(facts, "b", |seed| seed["spec"]["taints"] = json!([{"key": "k"}]))),
    ("older", |facts| edit(facts, "a", |seed| seed["status"]["gardener"]["version"] = json!("v1.149.0"))),
    ("other provider", |facts| edit(facts, "b", |seed| seed["spec"]["provider"]["type"] = json!("other"))),
    ("full", |facts| _ = facts.shoots_on.insert("b".into(), 3)),
    ("bastions", |facts| facts.bastions = vec!["one".into()]),
];

fn edit(facts: &mut Facts, name: &str, change: fn(&mut Value)) {
    let mut seed = mk_seed(name);
    change(&mut seed);
    facts.seeds.insert(name.to_owned(), Some(Arc::new(seed)));
}

/// One case: a Shoot, what is known, whether it is to move live, and whether the cluster has the subresource.
struct Case {
    name: String,
    shoot: Value,
    facts: Facts,
    live: bool,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (shoot_name, shoot_edit) in SHOOTS {
        for (seed_name, seed_edit) in SEEDS {
            for (live, binding) in [(false, false), (false, true), (true, false), (true, true)] {
                let (mut shoot, mut facts) = (mk_shoot(), Facts { binding, ..mk_facts() });
                shoot_edit(&mut shoot);
                seed_edit(&mut facts);
                let name = format!("{shoot_name}, {seed_name}, live: {live}, binding: {binding}");
                cases.push(Case { name, shoot, facts, live });
            }
        }
    }
    cases
}

/// Rules that refuse what a person writes, as webhooks see it: filled in first.
fn webhooks_refuse(change: &Change, facts: &Facts) -> (Vec<&'static str>, Value) {
    let new = filled(change, facts);
    let seen = Change { new: new.clone(), ..change.clone() };
    (refusals(&seen, facts), new)
}

fn preflight_refuses(change: &Change, facts: &Facts) -> Vec<&'static str> {
    let refused = preflight::judge(change, facts).into_iter().filter(|f| f.verdict == Verdict::Refuse);
    let mut rules: Vec<_> = refused.map(|finding| finding.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

#[test]
fn preflight_and_webhooks_agree_and_preflight_names_every_rule() {
    let (mut allowed, mut refused) = (0, 0);
    for case in cases() {
        let change = preflight::change(&case.shoot, "b", case.live, case.facts.binding);
        let told = preflight_refuses(&change, &case.facts);
        let (met, _) = webhooks_refuse(&change, &case.facts);
        assert_eq!(met.is_empty(), told.is_empty(), "{}: {met:?}, {told:?}", case.name);
        // Preflight also tells what the write that sets the trigger would meet.
        assert!(met.iter().all(|rule| told.contains(rule)), "{}: {met:?}, {told:?}", case.name);
        assert!(case.live || met == told, "{}: {met:?}, {told:?}", case.name);
        if told.is_empty() { allowed += 1 } else { refused += 1 }
    }
    assert!(allowed > 50 && refused > 500, "{allowed} allowed, {refused} refused");
}

/// The trigger is mostly set first, by a write of its own.
#[test]
fn a_trigger_that_is_set_first_leads_to_the_same_verdict() {
    for case in cases().into_iter().filter(|case| case.live) {
        let whole = preflight::change(&case.shoot, "b", true, case.facts.binding);
        let allowed = preflight_refuses(&whole, &case.facts).is_empty();
        let mut marked = case.shoot.clone();
        annotate(&mut marked, "migration.gardener.cloud/live-migrate", "true");
        let first = of(CORE_GROUP, "shoots", Operation::Update, case.shoot, marked);
        let (refused_first, marked) = webhooks_refuse(&first, &case.facts);
        let second = preflight::change(&marked, "b", false, case.facts.binding);
        let (refused_second, _) = webhooks_refuse(&second, &case.facts);
        let both = [refused_first, refused_second].concat();
        assert_eq!(both.is_empty(), allowed, "{}: {both:?}", case.name);
    }
}

#[test]
fn preflight_says_that_a_shoot_is_there_already() {
    for binding in [false, true] {
        let change = preflight::change(&mk_shoot(), "a", false, binding);
        assert_eq!(preflight_refuses(&change, &Facts { binding, ..mk_facts() }), ["different-seed"]);
    }
}
