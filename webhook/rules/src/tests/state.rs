use super::*;

const MIGRATION: &str = "migration.gardener.cloud";

fn state(user: User, operation: Operation, old: Value, new: Value) -> Change {
    Change { user, ..of(CORE_GROUP, "shootstates", operation, old, new) }
}

fn with_shoot(change: impl FnOnce(&mut Value)) -> Facts {
    let mut shoot = mk_shoot();
    change(&mut shoot);
    Facts { shoot: Some(Arc::new(shoot)), ..mk_facts() }
}

#[test]
fn states_are_written_by_the_gardenlets_of_both_seeds_and_by_controllers() {
    let write = |user| state(user, Operation::Update, json!({"spec": {}}), json!({"spec": {"gardener": []}}));
    accepts(&write(gardenlet("a")), &with_shoot(moves));
    accepts(&write(gardenlet("b")), &with_shoot(moves));
    rejects(&write(gardenlet("c")), &with_shoot(moves), &["state-writer"]);
    rejects(&write(gardenlet("a")), &mk_facts(), &["state-writer"]);
    rejects(&write(person("alice")), &with_shoot(rests), &["state-writer"]);
    accepts(&write(person("system:serviceaccount:repot-system:x")), &with_shoot(rests));
    // A name like that of a gardenlet is none without the group.
    rejects(&write(person("gardener.cloud:system:seed:a")), &with_shoot(rests), &["state-writer"]);
    let labelled = state(
        person("alice"),
        Operation::Update,
        json!({"spec": {}}),
        json!({"spec": {}, "metadata": {"labels": {}}}),
    );
    accepts(&labelled, &with_shoot(rests));
}

#[test]
fn states_are_deleted_by_people_only_with_a_confirmation() {
    let delete = |user, old| state(user, Operation::Delete, old, Value::Null);
    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    let ends = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    rejects(&delete(person("alice"), json!({})), &mk_facts(), &["state-deletion-confirmed"]);
    let admin = User { name: "root".into(), groups: vec!["system:masters".into()], ..User::default() };
    rejects(&delete(admin, json!({})), &mk_facts(), &["state-deletion-confirmed"]);
    accepts(&delete(person("alice"), confirmed), &mk_facts());
    accepts(&delete(person("alice"), ends), &mk_facts());
    accepts(&delete(gardenlet("b"), json!({})), &mk_facts());
    accepts(
        &delete(person("system:serviceaccount:kube-system:generic-garbage-collector"), json!({})),
        &mk_facts(),
    );
}

#[test]
fn the_state_of_a_shoot_that_exists_outlives_its_namespace() {
    let delete = |user, old| state(user, Operation::Delete, old, Value::Null);
    let empties = || person("system:serviceaccount:kube-system:namespace-controller");
    rejects(&delete(empties(), json!({})), &with_shoot(rests), &["state-deletion-confirmed"]);
    rejects(
        &delete(person("system:kube-controller-manager"), json!({})),
        &with_shoot(moves),
        &["state-deletion-confirmed"],
    );
    accepts(&delete(empties(), json!({})), &mk_facts());
    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    accepts(&delete(empties(), confirmed), &with_shoot(rests));
    // One of many that are deleted together comes without its name.
    let mut many = delete(empties(), json!({"metadata": {"name": "s"}}));
    many.target.name = String::new();
    let shoot = crate::facts::RequiredFacts::of(&many).shoot;
    assert_eq!(shoot, Some(("garden-p".to_owned(), "s".to_owned())));
}

fn workflow(kind: &str, phase: &str) -> Arc<Value> {
    Arc::new(json!({
        "kind": kind, "metadata": {"name": "other"}, "spec": {"clusterRef": {"name": "main"}}, "status": {"phase": phase},
    }))
}

#[test]
fn one_workflow_works_on_an_etcd() {
    let create = |resource| {
        let new = json!({"metadata": {"name": "new"}, "spec": {"clusterRef": {"name": "main"}}});
        of(MIGRATION, resource, Operation::Create, Value::Null, new)
    };
    let facts = |status: Value, workflows| Facts {
        hosted_etcd: Some(Arc::new(json!({"status": status}))),
        workflows,
        ..mk_facts()
    };
    let held = json!({"currentWorkflow": {"kind": "EtcdMigration", "name": "other", "uid": "1"}});
    for (facts, free) in [
        (facts(json!({}), vec![]), true),
        (facts(held, vec![]), false),
        (facts(json!({}), vec![workflow("EtcdMigration", "Running")]), false),
        (facts(json!({}), vec![workflow("EtcdRestore", "")]), false),
        (facts(json!({}), vec![workflow("EtcdMigration", "RolledBack")]), true),
        (facts(json!({}), vec![workflow("EtcdBackup", "Pending")]), true),
        (facts(json!({}), vec![workflow("EtcdBackup", "Running")]), false),
    ] {
        for resource in ["etcdmigrations", "etcdrestores"] {
            let expected: &[&str] = if free { &[] } else { &["one-workflow"] };
            assert_eq!(refusals(&create(resource), &facts), expected, "{facts:?}");
        }
        accepts(&create("etcdbackups"), &facts);
        assert_eq!(warnings(&create("etcdbackups"), &facts).is_empty(), free);
    }
    assert_eq!(warnings(&create("etcdmigrations"), &mk_facts()), ["one-workflow"]);
}

#[test]
fn the_lock_is_given_back_before_it_is_taken() {
    let held =
        |uid: &str| json!({"status": {"currentWorkflow": {"kind": "EtcdBackup", "name": uid, "uid": uid}}});
    let write = |old: Value, new: Value| Change {
        user: person("system:serviceaccount:repot-system:x"),
        ..of(MIGRATION, "hostedetcds/status", Operation::Update, old, new)
    };
    rejects(&write(held("1"), held("2")), &mk_facts(), &["workflow-lock"]);
    accepts(&write(held("1"), json!({"status": {}})), &mk_facts());
    accepts(&write(json!({}), held("2")), &mk_facts());
}

#[test]
fn status_is_left_to_controllers() {
    for resource in
        ["hostedetcds/status", "etcdbackups/status", "etcdrestores/status", "etcdmigrations/status"]
    {
        let write = |user: &str| Change {
            user: person(user),
            ..of(MIGRATION, resource, Operation::Update, json!({}), json!({"status": {"phase": "Succeeded"}}))
        };
        rejects(&write("alice"), &mk_facts(), &["workflow-status"]);
        accepts(&write("system:serviceaccount:repot-system:x"), &mk_facts());
    }
}

#[test]
fn what_holds_an_etcd_together_is_left_to_controllers() {
    let suspended =
        json!({"metadata": {"annotations": {"druid.gardener.cloud/suspend-etcd-spec-reconcile": "true"}}});
    let ours = json!({"metadata": {"annotations": {"migration.gardener.cloud/step": "joining"}}});
    let peers = json!({"spec": {"etcd": {"additionalAdvertisePeerUrls": []}}});
    let bootstrap = json!({"spec": {"etcd": {"bootstrapWithExistingCluster": {}}}});
    let lost = json!({"spec": {"etcd": {"lostMembers": ["8e9e05c52164694d"]}}});
    for (resource, object, rule) in [
        ("etcds", &suspended, "etcd-lifecycle"),
        ("etcds", &ours, "etcd-lifecycle"),
        ("etcds", &peers, "etcd-membership"),
        ("etcds", &bootstrap, "etcd-membership"),
        ("etcds", &lost, "etcd-membership"),
    ] {
        let write = |user: &str, old: &Value, new: &Value| {
            let group = if resource == "etcds" { "druid.gardener.cloud" } else { MIGRATION };
            Change { user: person(user), ..of(group, resource, Operation::Update, old.clone(), new.clone()) }
        };
        rejects(&write("alice", &json!({}), object), &mk_facts(), &[rule]);
        accepts(&write("system:serviceaccount:garden:gardenlet", &json!({}), &json!({})), &mk_facts());
        accepts(&write("system:serviceaccount:repot-system:x", &json!({}), object), &mk_facts());
        accepts(&write("alice", object, object), &mk_facts());
    }
    // Deleting an Etcd and making it anew leads to the same.
    for (object, rule) in [
        (&suspended, "etcd-lifecycle"),
        (&ours, "etcd-lifecycle"),
        (&peers, "etcd-membership"),
        (&bootstrap, "etcd-membership"),
    ] {
        let create = |user: &str| Change {
            user: person(user),
            ..of("druid.gardener.cloud", "etcds", Operation::Create, Value::Null, object.clone())
        };
        rejects(&create("alice"), &mk_facts(), &[rule]);
        accepts(
            &create("system:serviceaccount:garden:gardenlet"),
            &Facts {
                settings: Arc::new(Settings {
                    controllers: vec!["system:serviceaccount:garden:*".into()],
                    ..Settings::default()
                }),
                ..mk_facts()
            },
        );
    }
    // It counts by its presence.
    let empty =
        json!({"metadata": {"annotations": {"druid.gardener.cloud/suspend-etcd-spec-reconcile": ""}}});
    rejects(
        &of("druid.gardener.cloud", "etcds", Operation::Update, json!({}), empty),
        &mk_facts(),
        &["etcd-lifecycle"],
    );
    // What holds up a change of members is overruled by people.
    let overruled =
        json!({"metadata": {"annotations": {"migration.gardener.cloud/without-gateways": "true"}}});
    for (operation, old) in [(Operation::Update, json!({})), (Operation::Create, Value::Null)] {
        accepts(&of("druid.gardener.cloud", "etcds", operation, old, overruled.clone()), &mk_facts());
    }
    let frees = of("druid.gardener.cloud", "etcds", Operation::Update, suspended, json!({"metadata": {}}));
    accepts(&frees, &mk_facts());
    rejects(
        &of(MIGRATION, "hostedetcds", Operation::Update, json!({}), ours),
        &mk_facts(),
        &["etcd-lifecycle"],
    );
}

#[test]
fn an_etcd_is_not_deleted_while_it_takes_over_from_that_of_another_seed() {
    let delete = |old: Value| Change {
        user: person("system:serviceaccount:repot-system:x"),
        ..of("druid.gardener.cloud", "etcds", Operation::Delete, old, Value::Null)
    };
    let joined = json!({"members": [], "released": false});
    let taking_over =
        json!({"metadata": {}, "spec": {"etcd": {}}, "status": {"bootstrapWithExistingCluster": joined}});
    rejects(&delete(taking_over.clone()), &mk_facts(), &["etcd-handing-over"]);
    for (path, value) in [
        // It goes back first: the operator removes its members.
        ("/spec/etcd", json!({"bootstrapWithExistingCluster": {"members": []}})),
        ("/status/bootstrapWithExistingCluster/released", json!(true)),
        ("/status/bootstrapWithExistingCluster", Value::Null),
        ("/metadata", json!({"annotations": {"confirmation.gardener.cloud/deletion": "true"}})),
        ("/metadata", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})),
    ] {
        let mut old = taking_over.clone();
        *old.pointer_mut(path).expect("there") = value;
        accepts(&delete(old), &mk_facts());
    }
}

/// The source, while members of the destination have joined.
#[test]
fn an_etcd_is_not_deleted_while_members_of_another_need_its_own_for_a_quorum() {
    let delete = |user: &str, old: Value| Change {
        user: person(user),
        ..of("druid.gardener.cloud", "etcds", Operation::Delete, old, Value::Null)
    };
    let shared = json!({"metadata": {}, "status": {"unknownMembers": {
        "voters": 5, "dependOnOwn": true, "members": [{"name": "b-main-0"}, {"name": "b-main-1"}],
    }}});
    for user in ["alice", "system:serviceaccount:repot-system:x", "system:serviceaccount:garden:gardenlet"] {
        rejects(&delete(user, shared.clone()), &mk_facts(), &["etcd-handing-over"]);
    }
    let message = judged(&delete("alice", shared.clone()), &mk_facts())[0].message();
    assert!(message.contains("b-main-0, b-main-1"), "{message}");
    accepts(&delete("system:serviceaccount:kube-system:namespace-controller", shared.clone()), &mk_facts());
    for (path, value) in [
        ("/status/unknownMembers/dependOnOwn", json!(false)),
        ("/status/unknownMembers", Value::Null),
        ("/metadata", json!({"annotations": {"confirmation.gardener.cloud/deletion": "true"}})),
        ("/metadata", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})),
    ] {
        let mut old = shared.clone();
        *old.pointer_mut(path).expect("there") = value;
        accepts(&delete("alice", old), &mk_facts());
    }
}

#[test]
fn an_etcd_is_not_deleted_while_a_workflow_works_on_it() {
    let delete = |user: &str, old: Value| Change {
        user: person(user),
        ..of("druid.gardener.cloud", "etcds", Operation::Delete, old, Value::Null)
    };
    let etcd = || json!({"metadata": {"name": "s"}});
    let hosted = |etcd: &str, kind: &str, workflow: Value| {
        let object = json!({
            "metadata": {"name": "main"}, "spec": {"etcdRef": {"name": etcd, "kind": kind}},
            "status": {"currentWorkflow": workflow},
        });
        Facts { hosted_etcds: vec![Arc::new(object)], ..mk_facts() }
    };
    let busy = || json!({"kind": "EtcdMigration", "name": "m", "uid": "1"});
    let facts = hosted("s", "Etcd", busy());
    rejects(&delete("alice", etcd()), &facts, &["etcd-in-use"]);
    rejects(&delete("system:serviceaccount:repot-system:x", etcd()), &facts, &["etcd-in-use"]);
    // One of many that are deleted together comes without its name.
    let mut many = delete("alice", etcd());
    many.target.name = String::new();
    rejects(&many, &facts, &["etcd-in-use"]);
    let needs = crate::facts::RequiredFacts::of(&many);
    assert_eq!(needs.hosted_etcds_of.as_deref(), Some("garden-p"));
    accepts(&delete("system:serviceaccount:kube-system:namespace-controller", etcd()), &facts);
    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    accepts(&delete("alice", confirmed), &facts);
    accepts(&delete("alice", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})), &facts);
    for free in [
        hosted("s", "Etcd", Value::Null),
        hosted("other", "Etcd", busy()),
        hosted("s", "StatefulSet", busy()),
        mk_facts(),
    ] {
        accepts(&delete("alice", etcd()), &free);
    }
}

#[test]
fn a_field_that_early_versions_of_etcd_do_not_know_comes_with_a_warning() {
    let tls = |skips: bool| json!({"spec": {"etcd": {"peerUrlTls": {"skipClientSANVerification": skips}}}});
    for (old, new, expected) in [
        (Value::Null, tls(true), &["etcd-version"][..]),
        (tls(false), tls(true), &["etcd-version"]),
        (tls(true), tls(true), &[]),
        (tls(true), tls(false), &[]),
        (Value::Null, json!({"spec": {"etcd": {}}}), &[]),
    ] {
        let operation = if old.is_null() { Operation::Create } else { Operation::Update };
        let change = of("druid.gardener.cloud", "etcds", operation, old, new);
        assert_eq!(warnings(&change, &mk_facts()), expected, "{change:?}");
        accepts(&change, &mk_facts());
    }
}

#[test]
fn the_gardenlet_of_a_self_hosted_shoot_writes_and_deletes_the_state_of_that_shoot_alone() {
    let gardenlet = |shoot: &str| User {
        name: format!("gardener.cloud:system:shoot:{shoot}"),
        groups: vec!["gardener.cloud:system:shoots".into()],
        ..User::default()
    };
    for (operation, rule) in
        [(Operation::Create, "state-writer"), (Operation::Delete, "state-deletion-confirmed")]
    {
        let state = || json!({"metadata": {"name": "s"}, "spec": {"gardener": []}});
        let (old, new) = match operation {
            Operation::Delete => (state(), Value::Null),
            _ => (Value::Null, state()),
        };
        let by = |shoot: &str| Change {
            user: gardenlet(shoot),
            ..of(CORE_GROUP, "shootstates", operation, old.clone(), new.clone())
        };
        let (own, other) = (by("garden-p:s"), by("garden-p:other"));
        accepts(&own, &mk_facts());
        rejects(&other, &mk_facts(), &[rule]);
    }
}
