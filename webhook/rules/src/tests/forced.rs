use super::*;

const FORCE: &str = "shoot.gardener.cloud/force-restore";
const CONFIRM: &str = "confirmation.gardener.cloud/force-restore";

fn forced(shoot: &mut Value) {
    annotate(shoot, FORCE, "true");
    annotate(shoot, CONFIRM, "a");
}

fn silent() -> Facts {
    with_seed("a", |seed| seed["status"]["conditions"][0]["status"] = json!("Unknown"))
}

#[test]
fn accepts_a_forced_restore_against_a_silent_source() {
    accepts(&update(moves, forced), &silent());
    let mut gone = mk_facts();
    gone.seeds.insert("a".into(), None);
    accepts(&update(moves, forced), &gone);
    let gave_up = |shoot: &mut Value| {
        moves(shoot);
        shoot["status"]["lastOperation"] = json!({"type": "Migrate", "state": "Failed"});
    };
    accepts(&update(gave_up, forced), &mk_facts());
}

#[test]
fn an_error_of_the_source_counts_after_half_an_hour() {
    let errs = |since: &'static str| {
        move |shoot: &mut Value| {
            moves(shoot);
            shoot["status"]["lastOperation"] = json!({"type": "Migrate", "state": "Error"});
            shoot["status"]["retryCycleStartTime"] = json!(since);
        }
    };
    accepts(&update(errs("2026-11-21T11:30:00Z"), forced), &mk_facts());
    rejects(&update(errs("2026-11-21T11:30:01Z"), forced), &mk_facts(), &["forced-restore"]);
    let said = judged(&update(errs("2026-11-21T11:40:00Z"), forced), &mk_facts())[0].message();
    assert!(said.contains("it has retried for 20 of 30 minutes"), "{said}");
    rejects(&update(errs(""), forced), &mk_facts(), &["forced-restore"]);
}

#[test]
fn rejects_a_forced_restore_without_need_confirmation_or_destination() {
    rejects(&update(moves, forced), &mk_facts(), &["forced-restore"]);
    rejects(&update(rests, forced), &silent(), &["forced-restore"]);
    for confirmation in ["b", "true", ""] {
        let change = update(moves, |shoot| {
            forced(shoot);
            annotate(shoot, CONFIRM, confirmation);
        });
        rejects(&change, &silent(), &["forced-restore"]);
    }
    rejects(&update(moves, |shoot| annotate(shoot, FORCE, "y")), &silent(), &["forced-restore"]);
    let change = update(moves, |shoot| annotate(shoot, FORCE, "true"));
    assert_eq!(judged(&change, &mk_facts()).len(), 2, "need and confirmation are told at once");
    accepts(&update(moves, |shoot| annotate(shoot, FORCE, "false")), &mk_facts());
}

fn record(value: &str) -> Value {
    json!({"spec": {"recordType": "TXT", "name": "owner.s.p.example.com", "values": [value]}})
}

#[test]
fn ownership_records_are_left_to_controllers() {
    let group = "extensions.gardener.cloud";
    let write = |user: User, operation, old: Value, new: Value| Change {
        user,
        ..of(group, "dnsrecords", operation, old, new)
    };
    let changes = [
        (Operation::Create, Value::Null, record("a")),
        (Operation::Update, record("a"), record("b")),
        (Operation::Update, record("a"), json!({"spec": {"recordType": "TXT", "name": "else"}})),
        (Operation::Delete, record("a"), Value::Null),
    ];
    for (operation, old, new) in changes {
        let by = |user| write(user, operation, old.clone(), new.clone());
        rejects(&by(person("alice")), &mk_facts(), &["owner-record"]);
        for user in [
            "system:serviceaccount:repot-system:controllers",
            "system:serviceaccount:kube-system:namespace-controller",
        ] {
            accepts(&by(person(user)), &mk_facts());
        }
        accepts(&by(gardenlet("b")), &mk_facts());
        let admin = User { name: "root".into(), groups: vec!["system:masters".into()], ..User::default() };
        accepts(&by(admin.clone()), &mk_facts());
        assert_eq!(warnings(&by(admin), &mk_facts()), ["owner-record"]);
        let mut insists = by(person("alice"));
        let side = if operation == Operation::Delete { &mut insists.old } else { &mut insists.new };
        side["metadata"]["annotations"]["confirmation.gardener.cloud/takeover"] = json!("true");
        accepts(&insists, &mk_facts());
    }
    let mut finalized = record("a");
    finalized["metadata"] = json!({"finalizers": []});
    accepts(&write(person("alice"), Operation::Update, record("a"), finalized), &mk_facts());
    let other = json!({"spec": {"recordType": "A", "name": "owner.x"}});
    accepts(&write(person("alice"), Operation::Create, Value::Null, other), &mk_facts());
}

#[test]
fn only_operators_set_what_gives_up_data_or_availability() {
    let may_not = |facts: Facts| Facts { may_force: false, ..facts };
    let abort = "migration.shoot.gardener.cloud/abort-live-migration";
    let live = |shoot: &mut Value| {
        moving_live(
            shoot,
            &json!([
                {"type": "DestinationEtcdPeersJoined", "status": "True"},
                {"type": "DestinationKubeAPIServerReady", "status": "False", "reason": "Failed"},
            ]),
        );
    };
    let joining = |shoot: &mut Value| {
        moving_live(
            shoot,
            &json!([{"type": "DestinationEtcdPeersJoined", "status": "False", "reason": "Failed"}]),
        );
    };
    let dead = with_seed("b", |seed| seed["status"]["conditions"] = json!([]));
    let leaves = update(moves, |shoot| {
        shoot["spec"]["seedName"] = json!("c");
        annotate(shoot, "confirmation.gardener.cloud/leave-destination", "b");
    });
    for (change, facts) in [
        (update(moves, forced), silent()),
        (update(live, |shoot| annotate(shoot, abort, "force")), mk_facts()),
        (
            update(live, |shoot| annotate(shoot, "migration.gardener.cloud/force-shrink-etcd", "true")),
            mk_facts(),
        ),
        (leaves, dead),
    ] {
        accepts(&change, &facts);
        rejects(&change, &may_not(facts.clone()), &["force-permitted"]);
        let needs = crate::facts::RequiredFacts::of(&change);
        assert_eq!(needs.may_force, Some(("garden-p".to_owned(), "s".to_owned())));
        for (name, group) in [("root", "system:masters"), ("gardener.cloud:system:seed:a", SEEDS_GROUP)] {
            let user = User { name: name.into(), groups: vec![group.into()], ..User::default() };
            accepts(&Change { user, ..change.clone() }, &may_not(facts.clone()));
        }
    }
    for (change, facts) in [
        (update(joining, |shoot| annotate(shoot, abort, "true")), mk_facts()),
        (
            update(rests, |shoot| annotate(shoot, "migration.gardener.cloud/force-shrink-etcd", "false")),
            mk_facts(),
        ),
        (update(forced, |shoot| annotate(shoot, "x", "y")), mk_facts()),
        (update(forced, |shoot| shoot["metadata"]["annotations"] = json!({})), mk_facts()),
    ] {
        accepts(&change, &may_not(facts));
        assert_eq!(crate::facts::RequiredFacts::of(&change).may_force, None);
    }
}
