//! Rules of a change of seed, by bindings. Each case is also asked of `repot preflight`, which must say the same.

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::gardener;
use serde_json::{Value, json};

use crate::gardener::world::{Project, merge, refused_by, shared, touch};
use crate::webhook::preflight::preflight;

const TRIGGER: &str = "migration.gardener.cloud/live-migrate";

/// What makes a rule refuse.
enum Wrong {
    /// A merge patch of the destination.
    Destination(Value),
    /// A merge patch of the source, which is put right afterwards.
    Source(Value),
    /// Merge patches of the status of the Shoot: wrong, and right again.
    Status(Value, Value),
    /// Annotations of the Shoot.
    Annotations(Value),
    /// Annotations that come with the binding.
    Beside(Value),
    /// A merge patch of the Shoot with which it is created, and stays.
    Created(Value),
}

/// A rule, a state of the world in which it refuses, and who says so.
pub struct Case {
    pub rule: &'static str,
    wrong: Wrong,
    live: bool,
    /// What gardener-apiserver says of the same binding before it asks a webhook.
    gardener: Option<&'static str>,
}

const fn case(rule: &'static str, wrong: Wrong) -> Case {
    Case { rule, wrong, live: false, gardener: None }
}

impl Case {
    fn live(self) -> Self {
        Self { live: true, ..self }
    }

    fn heard(self, gardener: &'static str) -> Self {
        Self { gardener: Some(gardener), ..self }
    }
}

pub fn cases() -> Vec<Case> {
    use Wrong::{Annotations, Beside, Created, Destination, Source, Status};
    let credentials =
        json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "credentials"});
    let domain = |name: &str| json!({"type": "local", "domain": name, "credentialsRef": credentials});
    let gone = json!({"seedName": null, "lastOperation": null});
    let there = json!({"lastOperation": gardener::operation("Reconcile", "Succeeded")});
    let phase = |phase: &str| {
        let time = "2026-01-01T00:00:00Z";
        let key = json!({"phase": phase, "lastInitiationTime": time});
        json!({"credentials": {"rotation": {"etcdEncryptionKey": key}}})
    };
    vec![
        case("created-first", Status(gone, there)),
        case("destination-healthy", Destination(json!({"status": {"conditions": []}}))),
        case("same-gardenlet-version", Destination(json!({"status": {"gardener": {"version": "v1.151.0"}}}))),
        case("taints-tolerated", Destination(json!({"spec": {"taints": [{"key": "reserved"}]}})))
            .heard("whose taints are not tolerated"),
        case("destination-has-capacity", Destination(json!({"status": {"allocatable": {"shoots": "0"}}})))
            .heard("already has the maximum number of shoots"),
        case("backup-configured", Destination(json!({"spec": {"backup": null}})))
            .heard("backup is not configured for seed"),
        case(
            "internal-domain",
            Destination(json!({"spec": {"dns": {"internal": domain("other.example.com")}}})),
        )
        .heard("internal domain would change"),
        case("default-domain", Destination(json!({"spec": {"dns": {"defaults": [domain("example.org")]}}})))
            .heard("default domain"),
        case("enough-zones", Destination(json!({"spec": {"provider": {"zones": ["eu-1a", "eu-1b"]}}})))
            .heard("at least 3 zones"),
        case("rotation-settled", Status(phase("Preparing"), phase("Completed"))),
        case("ha-reconciled", Status(json!({"observedGeneration": 1}), json!({"observedGeneration": 99}))),
        case(
            "no-leftover-markers",
            Annotations(json!({"confirmation.gardener.cloud/force-restore": "some-seed"})),
        ),
        case(
            "requested-at-true",
            Beside(json!({"migration.gardener.cloud/requested-at": "2099-01-01T00:00:00Z"})),
        ),
        case("no-move-while-isolated", Annotations(json!({"shoot.gardener.cloud/isolated-zone": "eu-1a"}))),
        case(
            "live-same-provider",
            Destination(json!({"spec": {"provider": {"type": "other"}, "backup": {"region": "eu"}}})),
        )
        .live()
        .heard("must use the same provider type"),
        case("live-source-healthy", Source(json!({"status": {"conditions": []}}))).live(),
        case("live-distance", Destination(json!({"spec": {"provider": {"region": "us"}}})))
            .live()
            .heard("no scheduler region ConfigMap found"),
        case("live-highly-available", Created(json!({"spec": {"controlPlane": null}})))
            .live()
            .heard("must be configured for high availability"),
        case("live-awake", Created(json!({"spec": {"hibernation": {"enabled": true}}})))
            .live()
            .heard("not supported for hibernated"),
    ]
}

/// What is asked for: a seed, with annotations beside it.
struct Move<'a> {
    project: &'a Project<'a>,
    env: &'a TestEnv,
    shoot: &'a str,
    annotations: Value,
    live: bool,
}

impl Move<'_> {
    /// The binding is refused by the rule, or by Gardener before; preflight names the rule in any case.
    async fn is_refused(&self, seed: &str, case: &Case) -> Result<()> {
        let answer = self.project.patch(&format!("{}/binding", self.shoot), &self.binding(seed)).await?;
        if matches!(case.wrong, Wrong::Beside(_)) {
            // Preflight knows the Shoot as it is, and not what else somebody is about to write.
            return refused_by(&answer, &[case.rule]);
        }
        let told = self.preflight(seed).await?;
        let named = told["findings"].as_array().into_iter().flatten();
        let named = named
            .filter(|finding| finding["verdict"] == "refuse")
            .any(|finding| finding["rule"] == case.rule);
        ensure!(named && told["allowed"] == false, "preflight does not name {}: {told}", case.rule);
        match case.gardener {
            None => refused_by(&answer, &[case.rule]),
            Some(words) => {
                let said = answer.to_string();
                ensure!(answer.status >= 400 && said.contains(words) && !said.contains("repot"), "{said}");
                let dry_run = told["dryRun"]["message"].as_str().unwrap_or_default();
                ensure!(dry_run.contains(words), "preflight does not tell what Gardener says: {told}");
                let (old, mut new) =
                    (self.project.get(self.shoot).await?, self.project.get(self.shoot).await?);
                merge(&mut new, &self.binding(seed));
                let said = self.project.ask("seed-change", &old, &new).await?;
                ensure!(
                    said.contains(&format!("({})", case.rule)),
                    "{} does not refuse it: {said}",
                    case.rule
                );
                Ok(())
            }
        }
    }

    async fn is_allowed(&self, seed: &str) -> Result<()> {
        let told = self.preflight(seed).await?;
        ensure!(told["allowed"] == true && told["dryRun"]["verdict"] == "accepted", "{told}");
        self.project.patch(&format!("{}/binding", self.shoot), &self.binding(seed)).await?.ok().map(drop)
    }

    fn binding(&self, seed: &str) -> Value {
        let mut annotations = self.annotations.clone();
        if self.live {
            annotations[TRIGGER] = json!("true");
        }
        json!({"metadata": {"annotations": annotations}, "spec": {"seedName": seed}})
    }

    async fn preflight(&self, seed: &str) -> Result<Value> {
        let shoot = self.project.get(self.shoot).await?;
        // Scenarios run at the same time, in one directory.
        let file = self.env.path().join(format!("{}-{}.yaml", self.project.name, self.shoot));
        std::fs::write(&file, shoot.to_string())?;
        let (file, kubeconfig) =
            (file.display().to_string(), self.project.world.garden.kubeconfig().display().to_string());
        let mut args = vec!["--shoot", &file, "--to", seed, "--kubeconfig", &kubeconfig, "--output", "json"];
        args.extend(self.live.then_some("--live"));
        let out = preflight(args).await?;
        serde_json::from_slice(&out.stdout).with_context(|| format!("{out:?}"))
    }
}

/// `shoot` is the name of its Shoot, and of its destination where that is wrong.
async fn see(project: &Project<'_>, env: &TestEnv, shoot: &str, case: &Case) -> Result<()> {
    let mut created = json!({});
    if let Wrong::Created(patch) = &case.wrong {
        created = patch.clone();
    }
    project.create_on_a_as(shoot, &created).await?;
    let mut go = Move { project, env, shoot, annotations: json!({}), live: case.live };
    let fine = project.seed("b");
    match &case.wrong {
        Wrong::Destination(patch) => {
            let seed = project.seed(shoot);
            let mut wrong = gardener::seed(&seed);
            merge(&mut wrong, patch);
            project.put_seed(&wrong).await?;
            go.is_refused(&seed, case).await?;
        }
        Wrong::Source(patch) => {
            let mut wrong = gardener::seed(&project.seed("a"));
            merge(&mut wrong, patch);
            project.put_seed(&wrong).await?;
            go.is_refused(&fine, case).await?;
            project.put_seed(&gardener::seed(&project.seed("a"))).await?;
        }
        Wrong::Status(wrong, right) => {
            project.set_status(shoot, wrong).await?;
            go.is_refused(&fine, case).await?;
            project.set_status(shoot, right).await?;
            project.set_status(shoot, &json!({"seedName": project.seed("a")})).await?;
        }
        Wrong::Annotations(wrong) => {
            project.annotate(shoot, wrong).await?.ok()?;
            go.is_refused(&fine, case).await?;
            project.annotate(shoot, &touch(wrong, &Value::Null)).await?.ok()?;
        }
        Wrong::Beside(wrong) => {
            go.annotations = wrong.clone();
            go.is_refused(&fine, case).await?;
            go.annotations = json!({});
        }
        Wrong::Created(_) => {
            go.is_refused(&fine, case).await?;
            // With downtime it may go.
            go.live = false;
        }
    }
    go.is_allowed(&fine).await
}

pub async fn a_change_of_seed_is_judged_by_every_rule(env: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-seed").await?;
    let cases = cases().into_iter().filter(|case| gate || !case.live);
    for (number, case) in cases.enumerate() {
        see(&project, env, &format!("s{number}"), &case)
            .await
            .with_context(|| format!("rule {}", case.rule))?;
    }
    Ok(())
}

pub async fn preflight_says_that_a_shoot_is_there_already(env: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-same").await?;
    project.create_on_a("one").await?;
    let go = Move { project: &project, env, shoot: "one", annotations: json!({}), live: false };
    let told = go.preflight(&project.seed("a")).await?;
    ensure!(told["allowed"] == false && told["findings"][0]["rule"] == "different-seed", "{told}");
    let told = go.preflight(&project.seed("b")).await?;
    ensure!(told["allowed"] == true, "{told}");
    Ok(())
}
