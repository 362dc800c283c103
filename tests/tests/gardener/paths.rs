//! Annotations are judged on every path on which gardener-apiserver keeps them.

use anyhow::{Result, ensure};
use jiff::Timestamp;
use repot_tests::gardener::operation;
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{Project, refused_by, shared};

const TRIGGER: &str = "migration.gardener.cloud/live-migrate";
const ABORT: &str = "migration.shoot.gardener.cloud/abort-live-migration";

/// Annotations that mean harm on a Shoot that rests, and who refuses them.
fn harmful() -> Value {
    json!({
        ABORT: "force", "migration.gardener.cloud/force-shrink-etcd": "true", "shoot.gardener.cloud/force-restore": "true",
    })
}

const REFUSED_BY: &[&str] = &["live-abort-in-time", "live-shrink-in-need", "forced-restore"];

async fn no_path_is_open(live_migration: bool, name: &str) -> Result<()> {
    let shared = shared(live_migration)?;
    let project = Project::make(&shared, name).await?;
    project.create_on_a("one").await?;
    for path in ["one", "one/status"] {
        refused_by(&project.annotate(path, &harmful()).await?, REFUSED_BY)?;
    }
    let binding = json!({"metadata": {"annotations": harmful()}, "spec": {"seedName": project.seed("b")}});
    let answer = project.patch("one/binding", &binding).await?;
    // Two webhooks refuse it, and the API server repeats whichever answers first.
    refused_by(&answer, REFUSED_BY).or_else(|_| refused_by(&answer, &["no-leftover-markers"]))?;
    let kept = project.get("one").await?["metadata"]["annotations"].clone();
    for key in harmful().as_object().into_iter().flat_map(|all| all.keys()) {
        ensure!(kept.get(key).is_none(), "{kept}");
    }
    // What means no harm passes on each of them.
    for path in ["one", "one/status", "one/binding"] {
        let mut patch = json!({"metadata": {"annotations": {"team": path}}});
        if path.ends_with("binding") {
            patch["spec"] = json!({"seedName": project.seed("b")});
        }
        project.patch(path, &patch).await?.ok()?;
        ensure!(project.get("one").await?["metadata"]["annotations"]["team"] == path, "{path} keeps nothing");
    }
    Ok(())
}

#[test]
fn annotations_are_judged_on_every_path_with_the_feature_gate_on() {
    run(async |_| no_path_is_open(true, "paths-on").await);
}

#[test]
fn annotations_are_judged_on_every_path_with_the_feature_gate_off() {
    run(async |_| no_path_is_open(false, "paths-off").await);
}

/// A step of a live migration: name, status and reason of its condition.
type Step = (&'static str, &'static str, &'static str);

const JOIN_FAILED: &[Step] = &[("DestinationEtcdPeersJoined", "False", "Failed")];
const LEAVING: &[Step] = &[
    ("DestinationEtcdPeersJoined", "True", "Joined"),
    ("EtcdMigrationComplete", "False", "SourceMembersPresent"),
];

/// Conditions as gardenlet writes them now.
fn conditions(steps: &[Step]) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |(kind, status, reason): &Step| json!({"type": kind, "status": status, "reason": reason, "message": "by a test", "lastTransitionTime": now});
    json!({"liveMigration": {"conditions": steps.iter().map(condition).collect::<Vec<_>>()}})
}

/// A Shoot in the middle of a live migration from seed a to seed b.
async fn moving_live(project: &Project<'_>, name: &str, steps: &[Step]) -> Result<()> {
    project.create_on_a(name).await?;
    let start =
        json!({"metadata": {"annotations": {TRIGGER: "true"}}, "spec": {"seedName": project.seed("b")}});
    project.patch(&format!("{name}/binding"), &start).await?.ok()?;
    project.set_status(name, &json!({"lastOperation": operation("LiveMigrate", "Processing")})).await?;
    project.set_status(name, &conditions(steps)).await
}

#[test]
fn nobody_turns_back_beyond_the_point_of_no_return() {
    run(async |_| {
        let shared = shared(true)?;
        let project = Project::make(&shared, "no-return").await?;
        moving_live(&project, "late", LEAVING).await?;
        for value in ["true", "force"] {
            let answer = project.annotate("late/status", &json!({ABORT: value})).await?;
            refused_by(&answer, &["live-abort-in-time"])?;
        }
        refused_by(&project.bind("late", "a").await?, &["live-back-after-abort"])?;
        let both =
            json!({"metadata": {"annotations": {ABORT: "force"}}, "spec": {"seedName": project.seed("a")}});
        // Both webhooks refuse it; the API server repeats whichever answers first.
        refused_by(&project.patch("late/binding", &both).await?, &[])?;

        // An abort that was right when it was set does not open the way back for ever.
        moving_live(&project, "turned", JOIN_FAILED).await?;
        project.annotate("turned/status", &json!({ABORT: "true"})).await?.ok()?;
        project.set_status("turned", &conditions(LEAVING)).await?;
        refused_by(&project.bind("turned", "a").await?, &["live-back-after-abort"])
    });
}

#[test]
fn a_live_migration_that_was_called_off_in_time_goes_back() {
    run(async |_| {
        let shared = shared(true)?;
        let project = Project::make(&shared, "back").await?;
        moving_live(&project, "one", JOIN_FAILED).await?;
        refused_by(&project.bind("one", "a").await?, &["live-back-after-abort"])?;
        project.annotate("one", &json!({ABORT: "true"})).await?.ok()?;
        project.bind("one", "a").await?.ok().map(drop)
    });
}

#[test]
fn gardener_refuses_a_live_migration_while_its_feature_gate_is_off() {
    run(async |_| {
        let shared = shared(false)?;
        let project = Project::make(&shared, "gate-off").await?;
        project.create_on_a("one").await?;
        for annotation in [json!({TRIGGER: "true"}), json!({"gardener.cloud/operation": "live-migrate"})] {
            let answer = project.annotate("one", &annotation).await?;
            ensure!(
                answer.status == 403 || answer.status == 422,
                "{annotation} passed with the gate off: {answer}"
            );
        }
        project.bind("one", "b").await?.ok().map(drop)
    });
}
