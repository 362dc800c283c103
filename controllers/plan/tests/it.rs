//! The document is what the tables say, and a ledger is a status that the API accepts. `UPDATE_GOLDENS=1 cargo test -p repot-plan
//! --test it` writes the document anew.

mod golden;

use std::collections::BTreeMap;

use bytes::Bytes;
use golden::is_up_to_date;
use repot_api::{control_plane_migration, etcd_backup, etcd_migration, etcd_restore, zone_isolation};
use repot_apimachinery::time::Time;
use repot_apimachinery::{document::Document, field::FieldError, json::Node, kind::Kind};
use repot_etcd_core::{digest::Digest, snapshot::Revision, volumes::VolumeSet};
use repot_plan::{
    classic,
    etcd::{
        EtcdFlow, EtcdLedger, Notes, PLAN_VERSION, Step, api_outage, backup, migration,
        observed::{Settings, Targets},
        restore,
    },
    flow::{LedgerOf, Plans},
    gardenlet, isolation,
    ledger::{Phase, Record, State},
    migration::{
        Loss, MigrationFlow, Notes as MigrationNotes,
        observed::{ExposedMember, FinalSnapshot, FormerOperation, Replicas},
    },
    render,
    status::{fields, from_status, to_status},
};

#[test]
fn the_pages_are_what_the_tables_say() {
    is_up_to_date("docs/reference/etcd-workflows.md", &render::etcd_workflows());
    is_up_to_date("docs/reference/classic-migration.md", &render::classic_migration());
    is_up_to_date("docs/reference/forced-migration.md", &render::forced_migration());
    is_up_to_date("docs/reference/live-migration.md", &render::live_migration());
    is_up_to_date("docs/reference/gardenlet-migration.md", &render::gardenlet_migration());
    let page = "docs/reference/classic-gardenlet-migration.md";
    is_up_to_date(page, &render::classic_gardenlet_migration());
    is_up_to_date("docs/reference/zone-isolation.md", &render::zone_isolation());
}

fn mk_notes() -> Notes {
    let settings = Settings { replicas: 3, size: "10Gi".into(), storage_class: "slow".into() };
    Notes {
        locked: true,
        targets: Some(Targets { etcd: "main".into(), api: "kube-apiserver".into() }),
        backup: Some("n-1".into()),
        proof: Some(Digest { revision: Revision(7), keys: 5, hash: "2f".into() }),
        api_replicas: Some(2),
        api_generation: Some(4),
        served: true,
        old: Some((VolumeSet("data".into()), settings.clone())),
        new: Some(VolumeSet("n-2".into())),
        old_settings: Some(settings),
    }
}

fn mk_ledger(phase: Phase, steps: Vec<Step>) -> EtcdLedger {
    let states =
        [State::Succeeded, State::Running, State::Failed, State::Skipped, State::RolledBack, State::Pending];
    let record = |state| Record {
        state,
        reason: "BackupRetried".into(),
        message: "the store has no room; see whether it has".into(),
        started: Some(Time(60)),
        completed: Some(Time(90)),
        attempts: 2,
    };
    let steps = steps.into_iter().zip(states.into_iter().cycle()).map(|(step, state)| (step, record(state)));
    EtcdLedger {
        version: PLAN_VERSION,
        phase,
        reason: "BackupFailed".into(),
        message: "BackupTaken: failed".into(),
        started: Some(Time(30)),
        completed: Some(Time(100)),
        paused: Some(Time(40)),
        observed: None,
        failed_in: None,
        retry: 0,
        retried: None,
        steps: steps.collect::<BTreeMap<_, _>>(),
        notes: mk_notes(),
    }
}

/// What is published for the status is all that a ledger writes, and nothing that it writes is wrong.
#[test]
fn a_ledger_is_a_status_that_the_api_accepts() {
    type Validate = fn(&Node) -> Vec<FieldError>;
    let kinds: [(&Kind, Validate, &Plans<EtcdFlow>); 3] = [
        (&etcd_backup::KIND_INFO, etcd_backup::validate_status, &backup::PLANS),
        (&etcd_restore::KIND_INFO, etcd_restore::validate_status, &restore::PLANS),
        (&etcd_migration::KIND_INFO, etcd_migration::validate_status, &migration::PLANS),
    ];
    let phases = [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Cancelled];
    for (kind, validate, plans) in kinds {
        let plan = plans.newest();
        let own: &[Phase] = if plan.rollback.is_empty() {
            &[Phase::Scheduled]
        } else {
            &[Phase::RollingBack, Phase::RolledBack]
        };
        for phase in phases.iter().chain(own) {
            let status = to_status(plan, &mk_ledger(*phase, plan.steps()));
            let known = |field: &String| fields(plans).any(|known| known == field);
            let mut written = status.as_object().expect("fields").keys();
            assert!(written.all(known), "{status:#}");
            let text =
                serde_json::json!({"metadata": {"name": "x"}, "spec": {}, "status": status}).to_string();
            let (document, strict) = Document::decode(&Bytes::from(text), kind).expect("an object");
            assert_eq!(strict, [""; 0], "{} {phase:?}", kind.kind);
            assert_eq!(validate(&document.body), [], "{} {phase:?}", kind.kind);
        }
    }
}

/// The same of each side of a classic migration.
#[test]
fn a_ledger_of_a_side_is_a_status_that_the_api_accepts() {
    let replicas = || Some(Replicas::from([("kube-controller-manager".to_owned(), 1)]));
    let member = ExposedMember {
        name: "etcd-main-0".to_owned(),
        peer_url: "https://a:2380".to_owned(),
        client_url: "https://a:2379".to_owned(),
    };
    let notes = MigrationNotes {
        members: vec![member],
        hibernated: Some(false),
        workerless: Some(false),
        former_operation: Some(FormerOperation { kind: "Reconcile".into(), state: "Succeeded".into() }),
        changed: true,
        controllers: replicas(),
        api_answered_time: Some("2026-01-01T00:00:00Z".into()),
        api_dns_written_time: Some("2026-01-01T00:00:00Z".into()),
        api_servers: replicas(),
        api_ttl_seconds: Some(120),
        etcd_replicas: Some(3),
        owner_epoch: Some(2),
        ownership_ended: true,
        tunnel_servers: Replicas::from([("vpn-seed-server".to_owned(), 1)]),
        shrunk: true,
        final_snapshot: Some(FinalSnapshot { name: "final".into(), revision: 7, epoch: 1 }),
        loss: Some(Loss {
            snapshot: "delta".into(),
            revision: 6,
            time: "2026-01-01T00:00:00Z".into(),
            epoch: 1,
        }),
        volumes: Some("u-source".into()),
        dns_records_migrated: true,
    };
    let record =
        Record { state: State::Running, reason: "Stopping".into(), attempts: 1, ..Record::pending() };
    let ledger = LedgerOf::<MigrationFlow> {
        version: classic::PLAN_VERSION,
        phase: Phase::RollingBack,
        observed: Some(Time(60)),
        steps: classic::PLAN.steps().into_iter().map(|step| (step, record.clone())).collect(),
        notes,
        ..LedgerOf::<MigrationFlow>::default()
    };
    let side = to_status(&classic::PLAN, &ledger);
    assert_eq!(side["apiServers"]["kube-controller-manager"], 1);
    let status = serde_json::json!({"garden": side, "source": side, "destination": side});
    let text = serde_json::json!({"metadata": {"name": "x"}, "spec": {}, "status": status}).to_string();
    let kind = &control_plane_migration::KIND_INFO;
    let (document, strict) = Document::decode(&Bytes::from(text), kind).expect("an object");
    assert_eq!(strict, [""; 0]);
    assert_eq!(control_plane_migration::validate_status(&document.body), []);
    assert_eq!(from_status(&classic::PLANS, &side).expect("a ledger"), ledger);
}

/// The same of each side of a migration by gardenlet.
#[test]
fn a_ledger_of_a_migration_by_gardenlet_is_a_status_that_the_api_accepts() {
    let seed = || Some("seed-a".to_owned());
    let notes = gardenlet::Notes {
        changed: true,
        former_seeds: Some(gardenlet::FormerSeeds {
            shoot: seed(),
            backup_entry: seed(),
            backup_entry_status: seed(),
        }),
        loss: Some(Loss {
            snapshot: "delta".into(),
            revision: 6,
            time: "2026-01-01T00:00:00Z".into(),
            epoch: 0,
        }),
    };
    let record =
        Record { state: State::Running, reason: "Restoring".into(), attempts: 1, ..Record::pending() };
    let ledger = LedgerOf::<gardenlet::GardenletMigration> {
        version: gardenlet::PLAN_VERSION,
        phase: Phase::RollingBack,
        observed: Some(Time(60)),
        steps: gardenlet::PLAN.steps().into_iter().map(|step| (step, record.clone())).collect(),
        notes,
        ..LedgerOf::<gardenlet::GardenletMigration>::default()
    };
    let side = to_status(&gardenlet::PLAN, &ledger);
    assert_eq!(side["formerSeeds"]["backupEntryStatus"], "seed-a");
    let status = serde_json::json!({"garden": side, "destination": side});
    let text = serde_json::json!({"metadata": {"name": "x"}, "spec": {}, "status": status}).to_string();
    let (document, strict) =
        Document::decode(&Bytes::from(text), &control_plane_migration::KIND_INFO).expect("an object");
    assert_eq!(strict, [""; 0]);
    assert_eq!(control_plane_migration::validate_status(&document.body), []);
    assert_eq!(from_status(&gardenlet::PLANS, &side).expect("a ledger"), ledger);
}

/// The same of each side of an isolation.
#[test]
fn a_ledger_of_an_isolation_is_a_status_that_the_api_accepts() {
    let notes = isolation::Notes {
        begun: true,
        zone_code: Some("eu-central-1a".into()),
        machines: BTreeMap::from([("cpu".to_owned(), 6)]),
        worker_changed: true,
        subnet_seed: Some("seed-a".into()),
        isolated: true,
    };
    let record =
        Record { state: State::Running, reason: "Draining".into(), attempts: 1, ..Record::pending() };
    let ledger = LedgerOf::<isolation::ZoneIsolationFlow> {
        version: isolation::PLAN_VERSION,
        phase: Phase::Running,
        observed: Some(Time(60)),
        steps: isolation::PLAN.steps().into_iter().map(|step| (step, record.clone())).collect(),
        notes,
        ..LedgerOf::<isolation::ZoneIsolationFlow>::default()
    };
    let side = to_status(&isolation::PLAN, &ledger);
    assert_eq!(side["zoneCode"], "eu-central-1a");
    let status = serde_json::json!({"garden": side, "seed": side});
    let text = serde_json::json!({"metadata": {"name": "x"}, "spec": {}, "status": status}).to_string();
    let (document, strict) =
        Document::decode(&Bytes::from(text), &zone_isolation::KIND_INFO).expect("an object");
    assert_eq!(strict, [""; 0]);
    assert_eq!(zone_isolation::validate_status(&document.body), []);
    assert_eq!(from_status(&isolation::PLANS, &side).expect("a ledger"), ledger);
}

#[test]
fn the_outage_reaches_from_the_stop_to_the_first_api_server() {
    let mut ledger = mk_ledger(Phase::Succeeded, vec![Step::ApiDown]);
    assert_eq!(api_outage(&ledger), None);
    for step in [Step::ApiUpAgain, Step::ApiUp] {
        let mut up = ledger.steps[&Step::ApiDown].clone();
        up.completed = Some(Time(200));
        ledger.steps.insert(step, up);
        assert_eq!(api_outage(&ledger).map(|down| down.as_secs()), Some(140));
        assert_eq!(to_status(&migration::PLAN, &ledger)["apiDownSeconds"], 140);
        ledger.steps.remove(&step);
    }
}

#[test]
fn conditions_say_what_kubectl_wait_waits_for() {
    for (phase, progressing, succeeded) in [
        (Phase::Running, "True", "Unknown"),
        (Phase::RollingBack, "True", "Unknown"),
        (Phase::Succeeded, "False", "True"),
        (Phase::RolledBack, "False", "False"),
        (Phase::Failed, "False", "False"),
        (Phase::Cancelled, "False", "False"),
    ] {
        let status = to_status(&migration::PLAN, &mk_ledger(phase, Vec::new()));
        let conditions = status["conditions"].as_array().expect("conditions");
        let found: Vec<_> = conditions.iter().map(|c| (c["type"].as_str(), c["status"].as_str())).collect();
        assert_eq!(
            found,
            [(Some("Progressing"), Some(progressing)), (Some("Succeeded"), Some(succeeded))],
            "{phase:?}"
        );
    }
}
