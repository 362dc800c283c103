//! `repot preflight`: may this Shoot move to that seed, and what does a zone of a seed touch?

mod isolate;

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use repot_api::gardener::shoot::{Shoot, Trigger};
use repot_apimachinery::value::text_at;
use repot_rules::{
    change::Change,
    distance,
    facts::Facts,
    finding::{Finding, Verdict},
    judge, preflight,
    watch::SEED_CHANGE,
};
use repot_webhook::{
    facts::{Serve, World, read_manifests},
    garden::{DryRun, Garden},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::webhook::FactsFlags;

/// The answer is no.
const REFUSED: u8 = 3;
/// Bad usage, as for flags.
const USAGE: u8 = 2;
const SYNC_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Say whether a Shoot may move to a seed, with every reason against it, before anybody moves it.
///
/// The first step of every migration. It asks the same rules as the webhooks, on manifests (--facts DIR) or on a cluster
/// (--kubeconfig FILE). On a cluster it also sends the write itself as a dry run: beside Gardener its own plugins answer
/// first and with one reason only, so that the two are shown together. Nothing is changed.
/// Exit codes: 0 it may go, 3 it is refused, 2 bad usage, 1 failure.
///
///     kubectl get shoot -n garden-x my-shoot -o yaml | repot preflight --shoot /dev/stdin --to seed-b --kubeconfig garden.yaml
///     repot preflight --shoot shoot.yaml --to seed-b --live --facts landscape/
#[derive(Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Flags {
    #[command(subcommand)]
    task: Option<Task>,
    /// Manifest of the Shoot, YAML or JSON, with its status
    #[arg(long, value_name = "FILE", required = true)]
    shoot: Option<PathBuf>,
    /// The destination seed
    #[arg(long, value_name = "SEED", required = true)]
    to: Option<String>,
    /// Without downtime: as if the Shoot had migration.gardener.cloud/live-migrate=true. Gardener has this switched off unless
    /// gardener-apiserver runs with --feature-gates=LiveControlPlaneMigration=true
    #[arg(long)]
    live: bool,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    facts: FactsFlags,
}

/// What else is asked about.
#[derive(Subcommand)]
enum Task {
    Isolate(isolate::Flags),
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Prints the answer; the exit code says whether the move is allowed.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    match (flags.task, flags.shoot, flags.to) {
        (Some(Task::Isolate(flags)), ..) => isolate::run(flags).await,
        (None, Some(shoot), Some(to)) => {
            ask(&Question { shoot, to, live: flags.live, output: flags.output, facts: flags.facts }).await
        }
        // clap asks for the flags before.
        (None, ..) => bail!("--shoot and --to are missing"),
    }
}

/// Which Shoot is to move where.
struct Question {
    shoot: PathBuf,
    to: String,
    live: bool,
    output: Output,
    facts: FactsFlags,
}

async fn ask(flags: &Question) -> anyhow::Result<ExitCode> {
    let mut manifests = read_manifests(&flags.shoot)?;
    manifests.retain(|object| text_at(object, "/kind") == Some("Shoot"));
    let [shoot] = manifests.as_slice() else {
        eprintln!("repot: {} has {} Shoots, and one is wanted", flags.shoot.display(), manifests.len());
        return Ok(ExitCode::from(USAGE));
    };
    let garden = match &flags.facts.facts {
        Some(_) => None,
        None => Some(Garden::connect(flags.facts.kubeconfig.as_deref()).await?),
    };
    if let Some(garden) = &garden {
        garden.check_access().await?;
    }
    let end = CancellationToken::new();
    let world = flags.facts.world(Serve::Garden, &end).await?;
    let server = garden.as_ref().map_or("the directory of facts", Garden::server);
    wait_for_facts(&world, server).await?;
    let question = |binding| preflight::change(shoot, &flags.to, flags.live, binding);
    let facts = world
        .gather(&SEED_CHANGE, &question(false), SYNC_DEADLINE)
        .await
        .with_context(|| format!("failed to gather facts from {server}"))?;
    let change = question(facts.binding);
    let dry_run = match &garden {
        Some(garden) => Some(garden.dry_run(&change).await?),
        None => None,
    };
    let answer = Answer::new(change, &facts, dry_run);
    let text = match flags.output {
        Output::Json => answer.json(),
        Output::Text => answer.text(),
    };
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")?;
    Ok(if answer.allowed { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}

async fn wait_for_facts(world: &World, server: &str) -> anyhow::Result<()> {
    let synced = async {
        while !world.missing().is_empty() {
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(SYNC_DEADLINE, synced).await.is_err() {
        bail!("failed to list {} from {server} within {SYNC_DEADLINE:?}", world.missing().join(", "));
    }
    Ok(())
}

/// What the rules and the server say.
struct Answer {
    change: Change,
    findings: Vec<Finding>,
    distance: Option<u64>,
    dry_run: Option<DryRun>,
    allowed: bool,
}

impl Answer {
    fn new(change: Change, facts: &Facts, dry_run: Option<DryRun>) -> Self {
        let findings = preflight::judge(&change, facts);
        let denied = matches!(dry_run, Some(DryRun::Denied(_)));
        let shoot = Shoot(&change.old);
        let distance = shoot
            .spec_seed()
            .zip(Shoot(&change.new).spec_seed())
            .and_then(|(from, to)| distance::between(from, to, shoot, facts).distance());
        let allowed = judge::allows(&findings) && !denied;
        Self { change, findings, distance, dry_run, allowed }
    }

    /// One object in one line. Without a cluster there is no `dryRun`.
    fn json(&self) -> String {
        let one = |finding: &Finding| {
            let refused = finding.verdict == Verdict::Refuse;
            json!({
                "rule": finding.rule, "field": finding.field, "message": finding.message(),
                "verdict": if refused { "refuse" } else { "warn" },
            })
        };
        let findings: Vec<Value> = self.findings.iter().map(one).collect();
        let mut answer = json!({"allowed": self.allowed, "findings": findings, "distance": self.distance});
        if let Some(dry_run) = &self.dry_run {
            let (verdict, message) = described(dry_run);
            answer["dryRun"] = json!({"verdict": verdict, "message": message, "advice": dry_run.advice()});
        }
        format!("{answer}\n")
    }

    fn text(&self) -> String {
        let (target, old, new) = (&self.change.target, Shoot(&self.change.old), Shoot(&self.change.new));
        let mut text = format!(
            "Shoot {}/{} {} from seed {} to seed {}{}.\n",
            target.namespace,
            target.name,
            if self.allowed { "may move" } else { "may not move" },
            old.spec_seed().unwrap_or("(none)"),
            new.spec_seed().unwrap_or("(none)"),
            if new.trigger() == Trigger::Live { ", live" } else { "" }
        );
        let distance = self.distance.map_or_else(|| "not known".to_owned(), |distance| distance.to_string());
        text.push_str(&format!("Distance: {distance}\n"));
        for finding in &self.findings {
            let mark = if finding.verdict == Verdict::Refuse { "refused" } else { "warning" };
            text.push_str(&format!(
                "  {mark}  {}: {} ({})\n",
                finding.field,
                finding.message(),
                finding.rule
            ));
        }
        if let Some(dry_run) = &self.dry_run {
            let (verdict, message) = described(dry_run);
            let message = message.map(|message| format!(": {message}")).unwrap_or_default();
            let advice = dry_run.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
            text.push_str(&format!("API server (dry run): {verdict}{message}{advice}\n"));
        }
        text
    }
}

fn described(dry_run: &DryRun) -> (&'static str, Option<&str>) {
    match dry_run {
        DryRun::Accepted => ("accepted", None),
        DryRun::Denied(message) => ("denied", Some(message)),
        DryRun::NotAsked(message) => ("not asked", Some(message)),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;

    fn answer(dry_run: Option<DryRun>) -> Answer {
        let shoot = json!({
            "metadata": {"namespace": "garden-p", "name": "s"}, "spec": {"seedName": "a"},
            "status": {"seedName": "a"},
        });
        let seed = |name: &str| {
            let conditions = ["GardenletReady", "SeedSystemComponentsHealthy", "BackupBucketsReady"]
                .map(|kind| json!({"type": kind, "status": "True"}));
            let seed = json!({
                "metadata": {"name": name}, "spec": {"backup": {}, "provider": {"region": "eu"}},
                "status": {"gardener": {"version": "v1"}, "conditions": conditions},
            });
            (name.to_owned(), Some(Arc::new(seed)))
        };
        let facts =
            Facts { seeds: BTreeMap::from([seed("a"), seed("b")]), binding: true, ..Facts::default() };
        Answer::new(preflight::change(&shoot, "b", false, true), &facts, dry_run)
    }

    #[test]
    fn shows_the_rules_and_the_dry_run_together() {
        let accepted = answer(Some(DryRun::Accepted));
        assert!(accepted.allowed, "{}", accepted.text());
        assert!(accepted.text().ends_with("API server (dry run): accepted\n"), "{}", accepted.text());
        let denied = answer(Some(DryRun::Denied("cannot change seed name".to_owned())));
        assert!(!denied.allowed && denied.text().starts_with("Shoot garden-p/s may not move"));
        assert!(denied.text().contains("API server (dry run): denied: cannot change seed name"));
        assert!(denied.json().contains(r#""verdict":"denied""#), "{}", denied.json());
        let unasked = answer(Some(DryRun::NotAsked("no rights".to_owned())));
        assert!(unasked.allowed && unasked.text().contains("not asked: no rights"));
        let files = answer(None);
        assert_eq!(files.json(), "{\"allowed\":true,\"distance\":0,\"findings\":[]}\n");
        assert!(!files.text().contains("dry run"));
    }
}
