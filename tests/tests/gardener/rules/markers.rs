//! Rules about annotations, on each path on which gardener-apiserver keeps them: the Shoot, its status and its binding.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use repot_tests::TestEnv;
use repot_tests::gardener::{self, operation};
use repot_tests::http::{Answer, Api};
use serde_json::{Value, json};

use crate::gardener::world::{Project, merge, refused_by, shared, touch};
use crate::webhook::heard::hear;

const TRIGGER: &str = "migration.gardener.cloud/live-migrate";
const ABORT: &str = "migration.shoot.gardener.cloud/abort-live-migration";
const SHRINK: &str = "migration.gardener.cloud/force-shrink-etcd";
const FORCE: &str = "shoot.gardener.cloud/force-restore";
const CONFIRM_FORCE: &str = "confirmation.gardener.cloud/force-restore";
const LEAVE: &str = "confirmation.gardener.cloud/leave-destination";
const ZONE: &str = "shoot.gardener.cloud/isolated-zone";
const CONFIRM_ZONE: &str = "confirmation.gardener.cloud/isolated-zone";
const OPERATION: &str = "gardener.cloud/operation";

/// How a Shoot stands when somebody sets annotations.
#[derive(Clone, Copy, PartialEq)]
enum Stands {
    AtRest,
    /// On its way from seed a to seed b, with downtime; seed a is dead.
    MovingFromDead,
    /// On its way from seed a to seed b, live; the named step has failed.
    MovingLive(&'static str),
}

/// A rule, how the Shoot stands, annotations that are refused, and others that are not.
type Row = (&'static str, Stands, Value, Value);

fn rows(project: &Project<'_>) -> Vec<Row> {
    use Stands::{AtRest, MovingFromDead, MovingLive};
    let joining = MovingLive("DestinationEtcdPeersJoined");
    let starting = MovingLive("DestinationKubeAPIServerReady");
    let source = project.seed("a");
    vec![
        ("zone-form", AtRest, json!({ZONE: "EU 1"}), json!({ZONE: "eu-1a"})),
        ("zone-used", AtRest, json!({ZONE: "eu-1z"}), json!({ZONE: "eu-1z", CONFIRM_ZONE: "eu-1z"})),
        ("no-isolation-while-migrating", joining, json!({ZONE: "eu-1a"}), json!({"team": "x"})),
        (
            "live-permission-readable",
            AtRest,
            json!({"migration.gardener.cloud/allow-distant-regions": "maybe"}),
            json!({"migration.gardener.cloud/allow-distant-regions": "true"}),
        ),
        ("live-trigger-clear", AtRest, json!({TRIGGER: "maybe"}), json!({TRIGGER: "true"})),
        ("live-trigger-in-time", MovingFromDead, json!({TRIGGER: "true"}), json!({TRIGGER: "false"})),
        ("live-no-other-operation", joining, json!({OPERATION: "rotate-ssh-keypair"}), json!({"team": "x"})),
        ("live-abort-in-time", starting, json!({ABORT: "true"}), json!({ABORT: "force"})),
        ("live-shrink-in-need", joining, json!({SHRINK: "true"}), json!({SHRINK: "false"})),
        (
            "forced-restore",
            MovingFromDead,
            json!({FORCE: "true"}),
            json!({FORCE: "true", CONFIRM_FORCE: source}),
        ),
    ]
}

/// A condition of a step, as gardenlet writes it.
fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"type": kind, "status": status, "reason": reason, "message": "by a test", "lastTransitionTime": now})
}

async fn arrange(project: &Project<'_>, name: &str, stands: Stands) -> Result<()> {
    project.create_on_a(name).await?;
    match stands {
        Stands::AtRest => Ok(()),
        Stands::MovingFromDead => project.bind(name, "b").await?.ok().map(drop),
        Stands::MovingLive(failed) => {
            let annotations = json!({TRIGGER: "true"});
            let start =
                json!({"metadata": {"annotations": annotations}, "spec": {"seedName": project.seed("b")}});
            project.patch(&format!("{name}/binding"), &start).await?.ok()?;
            let mut conditions = vec![condition(failed, "False", "Failed")];
            if failed != "DestinationEtcdPeersJoined" {
                conditions.push(condition("DestinationEtcdPeersJoined", "True", "Joined"));
            }
            let status = json!({
                "lastOperation": operation("LiveMigrate", "Processing"), "liveMigration": {"conditions": conditions},
            });
            project.set_status(name, &status).await
        }
    }
}

/// The source of these Shoots answers, or does not.
async fn source_is(project: &Project<'_>, dead: bool) -> Result<()> {
    let mut seed = gardener::seed(&project.seed("a"));
    if dead {
        seed["status"]["conditions"][0]["status"] = json!("Unknown");
    }
    project.put_seed(&seed).await
}

/// `row` is the number of the row: names of Shoots are short in Gardener.
async fn see(project: &Project<'_>, row: usize, (rule, stands, wrong, right): &Row) -> Result<()> {
    for (number, suffix) in ["", "/status"].into_iter().enumerate() {
        let name = format!("s{row}-{number}");
        source_is(project, false).await?;
        arrange(project, &name, *stands).await?;
        source_is(project, *stands == Stands::MovingFromDead).await?;
        let path = format!("{name}{suffix}");
        let refused = project.annotate(&path, wrong).await?;
        refused_by(&refused, &[rule]).with_context(|| format!("through {path}"))?;
        let kept = project.get(&name).await?["metadata"]["annotations"].clone();
        for (key, value) in wrong.as_object().into_iter().flatten() {
            ensure!(kept.get(key) != Some(value), "{path} keeps what was refused: {kept}");
        }
        if suffix.is_empty() {
            bind_with(project, &name, rule, wrong).await.context("through the binding")?;
        }
        project.annotate(&path, right).await?.ok().with_context(|| format!("through {path}"))?;
    }
    Ok(())
}

/// A binding always changes the seed, so rules of that change refuse it as well, and the API server repeats whichever webhook answers
/// first. The rule itself is asked directly.
async fn bind_with(project: &Project<'_>, name: &str, rule: &str, wrong: &Value) -> Result<()> {
    let binding = json!({"metadata": {"annotations": wrong}, "spec": {"seedName": project.seed("c")}});
    refused_by(&project.patch(&format!("{name}/binding"), &binding).await?, &[])?;
    let (old, mut new) = (project.get(name).await?, project.get(name).await?);
    merge(&mut new, &binding);
    let said = project.ask("markers", &old, &new).await?;
    ensure!(said.contains(&format!("({rule})")), "{rule} does not refuse it: {said}");
    Ok(())
}

pub async fn annotations_are_judged_by_every_rule_on_every_path(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-mark").await?;
    project.put_seed(&gardener::seed(&project.seed("c"))).await?;
    for (number, row) in rows(&project).iter().enumerate() {
        see(&project, number, row).await.with_context(|| format!("rule {}", row.0))?;
    }
    Ok(())
}

fn warnings(answer: &Answer) -> String {
    let all = answer.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
    let all = all.collect::<Vec<_>>().join("\n");
    hear(&all);
    all
}

pub async fn an_isolation_is_judged_until_its_failback_is_done(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-zone").await?;
    let (isolated, second) = (json!({ZONE: "eu-1a"}), json!({ZONE: "eu-1b"}));
    let maintain = json!({OPERATION: "maintain"});
    project.create_on_a("one").await?;
    // Gardener takes the reconciliation that is filled in away, and raises the generation: nobody is warned.
    let answer = project.annotate("one", &isolated).await?;
    ensure!(answer.status == 200 && !warnings(&answer).contains("isolation-reconciled"), "{answer}");
    // Through the status no reconciliation can be asked for.
    project.create_on_a("two").await?;
    let answer = project.annotate("two/status", &isolated).await?;
    ensure!(answer.status == 200, "{answer}");
    for path in ["one", "one/status"] {
        refused_by(&project.annotate(path, &second).await?, &["zone-fixed"])?;
        refused_by(&project.annotate(path, &maintain).await?, &["no-maintenance-while-isolated"])?;
    }
    let workers = project.get("one").await?["spec"]["provider"]["workers"].clone();
    let with = |path: &str, value: Value| {
        let mut workers = workers.clone();
        if let Some(field) = workers.pointer_mut(path) {
            *field = value;
        }
        json!({"spec": {"provider": {"workers": workers}}})
    };
    let image = with("/0/machine/image/version", json!("1.1.0"));
    refused_by(&project.patch("one", &image).await?, &["versions-kept-while-isolated"])?;
    project.patch("one", &with("/0/maximum", json!(9))).await?.ok()?;
    project.annotate("one", &touch(&isolated, &Value::Null)).await?.ok()?;
    project.patch("one", &image).await?.ok()?;
    project.annotate("one", &maintain).await?.ok()?;
    project.annotate("one", &second).await?.ok()?;

    let workers = json!([{
        "name": "w", "minimum": 1, "maximum": 2, "maxSurge": 1, "zones": ["eu-1a"],
        "machine": {"type": "local", "image": {"name": "local"}},
    }]);
    project.create_on_a_as("single", &json!({"spec": {"provider": {"workers": workers}}})).await?;
    refused_by(&project.annotate("single", &isolated).await?, &["zones-left"])?;
    // One whose last operation failed is not reconciled before it is retried, and that is warned of.
    project.create_on_a("failed").await?;
    project.set_status("failed", &json!({"lastOperation": operation("Reconcile", "Failed")})).await?;
    let answer = project.annotate("failed", &isolated).await?;
    ensure!(
        answer.status == 200 && warnings(&answer).contains("isolation-reconciled"),
        "{answer} {}",
        warnings(&answer)
    );
    Ok(())
}

pub async fn a_live_migration_keeps_its_trigger_and_its_way(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-live").await?;
    arrange(&project, "one", Stands::MovingLive("DestinationEtcdPeersJoined")).await?;
    for path in ["one", "one/status"] {
        for value in [Value::Null, json!("false")] {
            let refused = project.annotate(path, &json!({TRIGGER: value})).await?;
            refused_by(&refused, &["live-trigger-kept"]).with_context(|| format!("through {path}"))?;
        }
    }
    // An annotation that says no calls nothing off.
    let no = project.annotate("one", &json!({ABORT: "false", TRIGGER: null})).await?;
    refused_by(&no, &["live-trigger-kept"])?;
    refused_by(&project.bind("one", "a").await?, &["live-back-after-abort"])?;
    // Gardener takes `reconcile` away, and only the generation tells of it.
    let reconcile = project.annotate("one", &json!({OPERATION: "reconcile"})).await?;
    refused_by(&reconcile, &["live-no-other-operation"])?;
    project.annotate("one", &json!({ABORT: "true"})).await?.ok()?;
    project.annotate("one", &json!({TRIGGER: null})).await?.ok()?;
    project.bind("one", "a").await?.ok().map(drop)
}

pub async fn what_gives_up_data_needs_a_verb_of_its_own(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-verb").await?;
    arrange(&project, "one", Stands::MovingFromDead).await?;
    source_is(&project, true).await?;
    let force = json!({"metadata": {"annotations": {FORCE: "true", CONFIRM_FORCE: project.seed("a")}}});
    let editor = project.user("eve", &["get", "patch", "update"]).await?;
    let path = format!("{}/one", project.shoots());
    for suffix in ["", "/status"] {
        let answer = editor.patch(&format!("{path}{suffix}"), "application/merge-patch+json", &force).await?;
        refused_by(&answer, &["force-permitted"])?;
    }
    leaves_a_dead_destination(&project, &editor).await?;
    source_is(&project, true).await?;
    project.user("eve", &["get", "patch", "update", "force-migration"]).await?;
    project.wait_until_permitted(&editor, &path, &force).await
}

/// The write that leaves a destination needs the verb, whoever has set the confirmation before, and whatever the seed is called.
async fn leaves_a_dead_destination(project: &Project<'_>, editor: &Api) -> Result<()> {
    // Looks like a boolean that says no.
    const DESTINATION: &str = "f";
    source_is(project, false).await?;
    let mut dead = gardener::seed(DESTINATION);
    project.put_seed(&dead).await?;
    project.create_on_a("two").await?;
    let (binding, confirmed) = ("two/binding", json!({LEAVE: DESTINATION}));
    project.patch(binding, &json!({"spec": {"seedName": DESTINATION}})).await?.ok()?;
    dead["status"]["conditions"][0]["status"] = json!("Unknown");
    project.put_seed(&dead).await?;
    refused_by(&project.bind("two", "a").await?, &["one-migration"])?;
    let merge = "application/merge-patch+json";
    let confirms = json!({"metadata": {"annotations": confirmed}});
    let path = format!("{}/two", project.shoots());
    refused_by(&editor.patch(&path, merge, &confirms).await?, &["force-permitted"])?;
    project.annotate("two", &confirmed).await?.ok()?;
    let back = json!({"spec": {"seedName": project.seed("a")}});
    let left = editor.patch(&format!("{path}/binding"), merge, &back).await?;
    refused_by(&left, &["force-permitted"])?;
    project.patch(binding, &back).await?.ok().map(drop)
}
