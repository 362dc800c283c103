//! What waits for Repot while it is down or hangs, and for how long: the table of docs/operate/webhook-outage.md.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use repot_tests::http::Answer;
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{Project, STATES, World, state};

const MERGE: &str = "application/merge-patch+json";
/// Shorter than any webhook is waited for: a write that takes less has not waited.
const NOT_WAITED: Duration = Duration::from_millis(1900);
/// So long an operator waits for a migration to be refused: mutating and validating webhooks, and the write itself.
const PATIENCE: Duration = Duration::from_millis(8500);
const LARGE: Duration = Duration::from_secs(20);
const STATE_BYTES: usize = 12 << 20;

/// What becomes of a write while Repot does not answer.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// It passes at once.
    Passes,
    /// It passes; a webhook that fails open is waited for.
    PassesLate,
    /// The API server refuses it, since a webhook that fails closed does not answer.
    Waits,
}

struct Row {
    what: &'static str,
    fate: Fate,
    took: Duration,
}

/// Writes to one Shoot after another in the order of its life, each with what is to become of it.
struct Run<'a> {
    project: Project<'a>,
    rows: Vec<Row>,
}

impl Run<'_> {
    async fn step(
        &mut self,
        what: &'static str,
        fate: Fate,
        write: impl Future<Output = Result<Answer>>,
    ) -> Result<()> {
        let began = Instant::now();
        let answer = write.await?;
        let took = began.elapsed();
        let passed = (200..300).contains(&answer.status);
        ensure!(passed == (fate != Fate::Waits), "{what}: {answer}");
        if fate == Fate::Waits {
            ensure!(answer.to_string().contains("failed calling webhook"), "{what}: {answer}");
        }
        // What a large object costs by itself comes on top of what is waited for.
        let large = if what.contains("12 MiB") || what == "update it" { LARGE } else { Duration::ZERO };
        // The API server judges a write again where its cache was behind, so what waits may wait twice.
        let limit = if fate == Fate::Passes { NOT_WAITED } else { 2 * PATIENCE + large };
        ensure!(took < limit, "{what} took {took:?}");
        self.rows.push(Row { what, fate, took });
        Ok(())
    }

    async fn live(&mut self, world: &World) -> Result<()> {
        let (name, shoots) = ("one", self.project.shoots());
        let project = Project { world, name: self.project.name.clone() };
        let shoot = repot_tests::gardener::shoot(&project.name, name);
        self.step("create a Shoot", Fate::Passes, world.api().post(&shoots, &shoot)).await?;
        self.step("first binding, by the scheduler", Fate::Passes, project.bind(name, "a")).await?;
        let status = json!({"status": {
            "seedName": project.seed("a"), "technicalID": "shoot--x--one", "uid": "one", "clusterIdentity": "one",
            "lastOperation": repot_tests::gardener::operation("Reconcile", "Succeeded"),
        }});
        self.step("status, by a gardenlet", Fate::Passes, project.patch("one/status", &status)).await?;
        for (what, patch) in everyday() {
            self.step(what, Fate::Passes, project.patch(name, &patch)).await?;
        }
        let no = json!({"migration.gardener.cloud/allow-distant-regions": "false"});
        self.step("set a marker to `false`", Fate::PassesLate, project.annotate(name, &no)).await?;
        let none = json!({"migration.gardener.cloud/allow-distant-regions": null});
        self.step("remove a marker", Fate::Passes, project.annotate(name, &none)).await?;
        let yes = json!({"migration.gardener.cloud/allow-distant-regions": "true"});
        self.step("set a marker", Fate::Waits, project.annotate(name, &yes)).await?;
        self.step("start a migration", Fate::Waits, project.bind(name, "b")).await?;
        self.states(&project).await?;
        self.after_failures(&project).await?;
        let confirm = json!({"confirmation.gardener.cloud/deletion": "true"});
        self.step("confirm a deletion", Fate::Passes, project.annotate(name, &confirm)).await?;
        let path = format!("{shoots}/{name}");
        self.step("delete a Shoot", Fate::Passes, world.api().delete(&path)).await
    }

    /// What repairs a migration, and what is done to a Shoot that is back at its source.
    async fn after_failures(&mut self, project: &Project<'_>) -> Result<()> {
        let name = "one";
        let stands = |kind: &str, seed: &str| {
            let last = repot_tests::gardener::operation(kind, "Failed");
            json!({"status": {"seedName": project.seed(seed), "lastOperation": last}})
        };
        let failed = stands("Migrate", "b");
        self.step("status of a failed migration", Fate::Passes, project.patch("one/status", &failed)).await?;
        let retry = json!({"gardener.cloud/operation": "retry"});
        self.step("retry a failed migration", Fate::Passes, project.annotate(name, &retry)).await?;
        let back = stands("LiveMigrate", "a");
        project.patch("one/status", &back).await?.ok()?;
        let spec = json!({"spec": {"purpose": "evaluation"}});
        self.step(
            "change the spec after a failed live migration",
            Fate::PassesLate,
            project.patch(name, &spec),
        )
        .await?;
        project.patch("one/status", &stands("Reconcile", "a")).await?.ok().map(drop)
    }

    async fn states(&mut self, project: &Project<'_>) -> Result<()> {
        let (api, path) =
            (project.world.api(), format!("{STATES}/namespaces/{}/shootstates", project.namespace()));
        let mut large = state(&project.namespace(), "one");
        large["spec"] =
            json!({"gardener": [{"name": "n", "type": "t", "data": {"x": "y".repeat(STATE_BYTES)}}]});
        self.step("create a ShootState of 12 MiB", Fate::PassesLate, api.post(&path, &large)).await?;
        let own = format!("{path}/one");
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        self.step("update it", Fate::PassesLate, api.patch(&own, MERGE, &label)).await?;
        self.step("delete it unconfirmed", Fate::Waits, api.delete(&own)).await?;
        let confirm = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
        self.step("confirm its deletion", Fate::PassesLate, api.patch(&own, MERGE, &confirm)).await?;
        self.step("delete it confirmed", Fate::Passes, api.delete(&own)).await
    }
}

/// Writes to a Shoot that does not migrate.
fn everyday() -> Vec<(&'static str, Value)> {
    let operation = |value: &str| json!({"metadata": {"annotations": {"gardener.cloud/operation": value}}});
    let maintenance =
        json!({"metadata": {"annotations": {"maintenance.gardener.cloud/operation": "rotate-ssh-keypair"}}});
    vec![
        ("label", json!({"metadata": {"labels": {"team": "x"}}})),
        ("change of the spec", json!({"spec": {"purpose": "testing"}})),
        ("reconcile", operation("reconcile")),
        ("start of maintenance", operation("maintain")),
        ("operation in the next maintenance", maintenance),
        ("rotation of credentials", operation("rotate-ca-start")),
        ("end of an operation", json!({"metadata": {"annotations": {"gardener.cloud/operation": null}}})),
        ("hibernate", json!({"spec": {"hibernation": {"enabled": true}}})),
        ("wake up", json!({"spec": {"hibernation": {"enabled": false}}})),
    ]
}

async fn live_in(world: &World, name: &str) -> Result<Vec<Row>> {
    let project = Project { world, name: name.to_owned() };
    let mut run = Run { project, rows: Vec::new() };
    run.live(world).await?;
    Ok(run.rows)
}

fn print(down: &[Row], hangs: &[Row]) {
    let mut table = String::from("| write | while nobody answers | down | hangs |\n|---|---|---|---|\n");
    for (down, hangs) in down.iter().zip(hangs) {
        let fate = if down.fate == Fate::Waits { "refused" } else { "goes through" };
        let seconds = |row: &Row| format!("{:.1} s", row.took.as_secs_f64());
        let _ = writeln!(table, "| {} | {fate} | {} | {} |", down.what, seconds(down), seconds(hangs));
    }
    eprintln!("{table}");
    if let Some(path) = std::env::var_os("OUTAGE_TABLE") {
        std::fs::write(path, table).expect("written");
    }
}

#[test]
#[ignore = "minutes, in make soak"]
fn what_is_no_migration_runs_while_repot_is_down_or_hangs() {
    run(async |env| {
        let mut world = World::start(env, true).await?;
        for name in ["hangs", "down"] {
            Project::make(&world, name).await?.create("probe").await?;
        }
        world.webhook.process().pause();
        let hangs = live_in(&world, "hangs").await;
        world.webhook.process().resume();
        world.webhook.kill();
        let down = live_in(&world, "down").await?;
        print(&down, &hangs?);
        Ok(())
    });
}
