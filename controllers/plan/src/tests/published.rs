//! Statuses are those that version 1 of the tables was published with: the same records in the same passes, under the same names.

use repot_apimachinery::time::Time;
use serde_json::{Value, json};

use super::{
    cluster::{FaultRates, Kind, Truth, calm, sound},
    rng::Rng,
    sim::Model,
};
use crate::{
    etcd::EtcdLedger,
    flow::Input,
    status::{from_status, to_status},
};

/// What was written then. `hash` covers all statuses of a run, `last` is the last one.
const GOLDEN: &str = include_str!("goldens/statuses-v1.json");

fn trouble(name: &str) -> FaultRates {
    let mut trouble = calm();
    match name {
        "calm" => {}
        "cancel" => trouble.cancel_at = 1_000_300,
        "noroom" => trouble.no_room = true,
        "wrong" => trouble.wrong_restore = true,
        "apinever" => trouble.api_never_up = true,
        "intruder" => trouble.intruder = true,
        "theft" => trouble.theft = Some((1_000_200, 1_000_500)),
        "quorum" => trouble.quorum_lost = Some((1_000_000, 1_000_900)),
        "deleted" => trouble.cluster_gone_at = 1_000_300,
        "lingers" => trouble.members_linger = 4_000,
        "backupfails" => trouble.backup_fails = 100,
        other => panic!("{other} is unknown"),
    }
    trouble
}

/// The statuses of a run, as one hash (FNV-1a), and the last one.
fn run(kind: Kind, name: &str) -> Value {
    let mut truth = Truth::with(Rng::new(7), trouble(name));
    if kind == Kind::Restore {
        truth.add_backup("from");
    }
    let build = sound(kind);
    let plans = build.plans;
    let mut ledger = EtcdLedger::default();
    let (mut hash, mut records) = (0xcbf2_9ce4_8422_2325_u64, 0);
    for _ in 0..1_500 {
        truth.pass(&ledger);
        let (observed, seen) = truth.look();
        let decision = Truth::decide(&build, &Input::alone(&observed, &ledger, Time(truth.now)));
        if let Some(next) = &decision.records {
            let status = to_status(plans.newest(), next);
            ledger = from_status(plans, &status).expect("a status");
            let text = status.to_string();
            hash =
                text.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            records += 1;
        }
        decision.effects.iter().for_each(|effect| truth.change(effect, &seen, true));
        if truth.object_gone {
            break;
        }
    }
    let last = to_status(plans.newest(), &ledger);
    json!({"records": records, "hash": format!("{hash:016x}"), "last": last})
}

#[test]
fn statuses_are_those_that_were_published() {
    let golden: serde_json::Map<String, Value> = serde_json::from_str(GOLDEN).expect("a golden");
    assert_eq!(golden.len(), 33);
    for (title, mut expected) in golden {
        let (kind, name) = title.split_once(' ').expect("kind and name");
        let kind = match kind {
            "Backup" => Kind::Backup,
            "Restore" => Kind::Restore,
            _ => Kind::Migration,
        };
        let mut found = run(kind, name);
        // Some are kept whole, for the one who has to understand a difference.
        match expected.as_object_mut().and_then(|fields| fields.remove("last")) {
            Some(last) => assert_eq!(found["last"], last, "{title}"),
            None => found["last"] = Value::Null,
        }
        assert_eq!((&found["records"], &found["hash"]), (&expected["records"], &expected["hash"]), "{title}");
    }
}

/// What an earlier release wrote is read, also under the name that `before` is going to have.
#[test]
fn statuses_that_were_published_are_read() {
    let golden: Value = serde_json::from_str(GOLDEN).expect("a golden");
    for kind in [Kind::Restore, Kind::Migration] {
        let plans = sound(kind).plans;
        let mut status = golden[format!("{kind:?} apinever")]["last"].clone();
        let ledger = from_status(plans, &status).expect("a status");
        assert!(ledger.notes.locked && ledger.notes.old.is_some() && ledger.notes.targets.is_some());
        assert_eq!(to_status(plans.newest(), &ledger), status);
        let before = status.as_object_mut().and_then(|status| status.remove("before")).expect("a field");
        status["original"] = before;
        assert_eq!(from_status(plans, &status).map(|found| found.notes), Ok(ledger.notes));
    }
}
