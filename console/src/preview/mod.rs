//! What a migration will do, before anybody has asked for it.

mod carried;

use serde::Serialize;
use serde_json::Value;

pub use self::carried::{Binding, Carried};
use crate::{
    durations::{Durations, Spread},
    migration::{Executor, Mode},
    table::{Table, TableRow},
    text::{columns, duration, one_line},
};

/// A migration that nobody has asked for yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// Namespace of the Shoot.
    pub namespace: String,
    /// Name of the Shoot.
    pub shoot: String,
    /// The seed that is left.
    pub source_seed: String,
    /// The seed where the control plane goes.
    pub destination_seed: String,
    /// How it moves.
    pub mode: Mode,
    /// Who carries it out.
    pub executor: Executor,
}

/// What it will do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// What moves where.
    #[serde(flatten)]
    pub asked: Move,
    /// All rows of the forward table.
    pub rows: Vec<PreviewRow>,
    /// From this step on nothing rolls back.
    pub point_of_no_return: &'static str,
    /// What migrations of this mode took.
    pub history: History,
    /// What the API of the Shoot goes through, in words.
    pub outage: String,
    /// What is carried by the ShootState; `None` where it cannot be read.
    pub carried: Option<Carried>,
    /// What is worth knowing before.
    pub warnings: Vec<String>,
}

/// A row with the time that it took as a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewRow {
    /// The row.
    #[serde(flatten)]
    pub row: TableRow,
    /// How long it took; `None` where no migration has been through it.
    pub usual: Option<Spread>,
    /// Whether clients cannot reach the API meanwhile.
    pub within_outage: bool,
}

/// What migrations of the same mode took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct History {
    /// How many have succeeded.
    pub migrations: usize,
    /// All of a migration.
    pub total: Option<Spread>,
    /// The time without an API.
    pub outage: Option<Spread>,
}

impl Preview {
    /// What this move does; `None` where there is no such flow.
    #[must_use]
    pub fn new(asked: Move, past: &Durations, state: Option<&Value>, shoot: &Value) -> Option<Self> {
        let table = Table::of(asked.mode, asked.executor)?;
        let within = within_outage(&table);
        let row = |row: &TableRow| PreviewRow {
            usual: past.steps.get(row.step).copied(),
            within_outage: within.contains(&row.step),
            row: row.clone(),
        };
        let history = History { migrations: past.migrations, total: past.total, outage: past.outage };
        Some(Self {
            rows: table.forward.iter().map(row).collect(),
            point_of_no_return: table.point_of_no_return,
            outage: outage(&asked, &table, &history),
            carried: state.map(|state| Carried::of(state, &asked.destination_seed)),
            warnings: warnings(&asked, shoot),
            history,
            asked,
        })
    }

    /// The same for people; `wide` adds what each row does.
    #[must_use]
    pub fn text(&self, wide: bool) -> String {
        let Move { namespace, shoot, source_seed, destination_seed, mode, executor } = &self.asked;
        let mut text = format!(
            "Shoot {namespace}/{shoot}: {source_seed} -> {destination_seed}, {}, executor {}\n",
            mode.name(),
            executor.name()
        );
        let mut line = |label: &str, says: String| text.push_str(&format!("  {label:<10} {says}\n"));
        line("duration", self.history.words());
        line("API outage", self.outage.clone());
        line("no return", format!("from {} on nothing rolls back", self.point_of_no_return));
        match &self.carried {
            Some(carried) => line("carried", carried.words()),
            None => line("carried", "not known: there is no ShootState, or it cannot be read".to_owned()),
        }
        for warning in &self.warnings {
            line("warning", warning.clone());
        }
        text.push('\n');
        text.push_str(&self.table(wide));
        let bindings = self.carried.iter().flat_map(|carried| &carried.bindings);
        let rows: Vec<[String; 3]> = bindings.map(Binding::cells).collect();
        if !rows.is_empty() {
            text.push_str("\nFields that depend on the seed:\n");
            text.push_str(&columns(&rows));
        }
        text
    }

    fn table(&self, wide: bool) -> String {
        let head = ["", "STEP", "SIDE", "USUALLY", "LONGEST", "ON FAILURE", if wide { "DOES" } else { "" }];
        let row = |row: &PreviewRow| {
            let time = |of: fn(&Spread) -> i64| {
                row.usual.as_ref().map_or("?".to_owned(), |spread| duration(of(spread)))
            };
            [
                mark(row, self.point_of_no_return).to_owned(),
                row.row.step.to_owned(),
                row.row.side.to_owned(),
                time(|spread| spread.median_seconds),
                time(|spread| spread.longest_seconds),
                row.row.on_failure.to_owned(),
                if wide { row.row.does.to_owned() } else { String::new() },
            ]
        };
        let rows: Vec<[String; 7]> =
            std::iter::once(head.map(str::to_owned)).chain(self.rows.iter().map(row)).collect();
        columns(&rows) + "! the API is away, * point of no return\n"
    }
}

fn mark(row: &PreviewRow, point_of_no_return: &str) -> &'static str {
    match (row.within_outage, row.row.step == point_of_no_return) {
        (true, true) => "!*",
        (true, false) => "!",
        (false, true) => "*",
        (false, false) => "",
    }
}

/// Steps that wait for the beginning of the outage, directly or by others, and that its end waits for.
fn within_outage(table: &Table) -> Vec<&'static str> {
    let Some((from, to)) = table.outage else { return Vec::new() };
    let mut behind = vec![from];
    for row in &table.forward {
        if row.after.iter().any(|step| behind.contains(step)) {
            behind.push(row.step);
        }
    }
    let mut before = vec![to];
    for row in table.forward.iter().rev() {
        if before.contains(&row.step) {
            before.extend(row.after.iter().copied());
        }
    }
    behind.retain(|step| before.contains(step));
    behind
}

fn outage(asked: &Move, table: &Table, history: &History) -> String {
    match (asked.mode, table.outage, history.outage) {
        (Mode::Live, ..) => "none: both seeds serve meanwhile".to_owned(),
        (_, _, Some(spread)) => format!(
            "{} as a rule, {} at most, in {} migrations",
            duration(spread.median_seconds),
            duration(spread.longest_seconds),
            spread.count
        ),
        (_, Some((from, to)), None) => {
            format!("from {from} to {to}; how long is not known: no such migration has succeeded here")
        }
        (_, None, None) => "gardenlet decides; no such migration has succeeded here".to_owned(),
    }
}

fn warnings(asked: &Move, shoot: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let text = |pointer: &str| shoot.pointer(pointer).and_then(Value::as_str);
    if let Some(state) = text("/status/lastOperation/state").filter(|state| *state != "Succeeded") {
        let kind = text("/status/lastOperation/type").unwrap_or("?");
        warnings.push(one_line(&format!("the last operation of the Shoot is {kind}, {state}")));
    }
    if text("/spec/seedName") != text("/status/seedName") {
        warnings
            .push("spec.seedName and status.seedName differ: another migration may be under way".to_owned());
    }
    if !shoot["metadata"]["deletionTimestamp"].is_null() {
        warnings.push("the Shoot is being deleted".to_owned());
    }
    if asked.mode == Mode::Forced {
        warnings.push(format!(
            "what {} stored after its newest snapshot is lost; somebody has to confirm that",
            asked.source_seed
        ));
    }
    warnings
}

impl History {
    fn words(&self) -> String {
        match self.total {
            Some(total) => format!(
                "{} as a rule, {} at most, in {} migrations",
                duration(total.median_seconds),
                duration(total.longest_seconds),
                total.count
            ),
            None => "not known: no such migration has succeeded here".to_owned(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use repot_controllers::migration::destination::bindings::BINDINGS;
    use serde_json::json;

    use super::*;
    use crate::migration::tests::{classic, read};

    /// A move of the Shoot alpha from seed-a to seed-b.
    pub(crate) fn asked(mode: Mode) -> Move {
        Move {
            namespace: "garden-dev".to_owned(),
            shoot: "alpha".to_owned(),
            source_seed: "seed-a".to_owned(),
            destination_seed: "seed-b".to_owned(),
            mode,
            executor: Executor::Repot,
        }
    }

    fn state() -> Value {
        let annotations = json!({BINDINGS: r#"{"/spec/values/0": "${apiServer.address}", "/spec/seed": "${seed.name}", "/spec/wrong": "${seed.height}"}"#});
        json!({"spec": {
            "gardener": [{"name": "ca"}], "extensions": [],
            "resources": [{"kind": "DNSRecord", "name": "api", "data": {"metadata": {"annotations": annotations}}}],
        }})
    }

    #[test]
    fn rows_of_the_outage_are_those_between_its_steps() {
        let preview =
            Preview::new(asked(Mode::Classic), &Durations::default(), None, &json!({})).expect("a flow");
        let within: Vec<&str> =
            preview.rows.iter().filter(|row| row.within_outage).map(|row| row.row.step).collect();
        let expected = [
            "SourceApiStopped",
            "OwnerRecordDeleted",
            "FinalSnapshotTaken",
            "FinalSnapshotCopied",
            "OwnerRecordTaken",
            "EtcdServes",
            "ApiServes",
            "MoveCommitted",
            "ApiDnsSwitched",
        ];
        assert_eq!(within, expected);
    }

    #[test]
    fn preview_says_what_is_carried_and_what_depends_on_the_seed() {
        let past = Durations::of(&[read(classic())], Mode::Classic, Executor::Repot);
        let shoot = json!({"status": {"lastOperation": {"type": "Reconcile", "state": "Error"}}});
        let preview = Preview::new(asked(Mode::Classic), &past, Some(&state()), &shoot).expect("a flow");
        let text = preview.text(false);
        for line in [
            "  duration   1m05s as a rule, 1m05s at most, in 1 migrations\n",
            "  API outage 7s as a rule, 7s at most, in 1 migrations\n",
            "1 objects, 1 secrets and Gardener's own data, 0 states of extensions\n",
            "  warning    the last operation of the Shoot is Reconcile, Error\n",
            "  DNSRecord api  /spec/seed      seed-b\n",
            "  DNSRecord api  /spec/values/0  ${apiServer.address} (known when the destination has it)\n",
            "  DNSRecord api  /spec/wrong     ${seed.height} (DNSRecord api: /spec/wrong asks for seed.height, ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn live_migration_has_no_outage_and_a_forced_one_warns_of_loss() {
        let of = |mode| Preview::new(asked(mode), &Durations::default(), None, &json!({})).expect("a flow");
        assert!(of(Mode::Live).outage.starts_with("none"));
        assert!(of(Mode::Live).rows.iter().all(|row| !row.within_outage));
        assert!(of(Mode::Forced).warnings.iter().any(|warning| warning.contains("is lost")));
    }
}
