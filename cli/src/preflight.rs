//! `repot preflight`: may this Shoot move to that seed?

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use repot_api::names::LIVE_MIGRATE;
use repot_rules::{
    change::{Change, Operation, Target, User, text_at},
    distance,
    facts::Facts,
    finding::{Finding, Verdict},
    judge,
    shoot::{Shoot, Trigger},
    watch::{MARKERS, SEED_CHANGE},
};
use repot_webhook::facts::{Serve, read_manifests};
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
/// The same rules as those of the webhooks, on manifests (--facts DIR) or on a cluster (--kubeconfig FILE). Nothing is changed.
/// Exit codes: 0 it may go, 3 it is refused, 2 bad usage, 1 failure.
///
///     repot preflight --shoot shoot.yaml --to seed-b --live --facts landscape/
///     kubectl get shoot -n garden-x my-shoot -o yaml | repot preflight --shoot /dev/stdin --to seed-b --kubeconfig garden.yaml
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// Manifest of the Shoot, YAML or JSON, with its status
    #[arg(long, value_name = "FILE")]
    shoot: PathBuf,
    /// The destination seed
    #[arg(long, value_name = "SEED")]
    to: String,
    /// Without downtime
    #[arg(long)]
    live: bool,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    facts: FactsFlags,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Answers.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let mut manifests = read_manifests(&flags.shoot)?;
    manifests.retain(|object| text_at(object, "/kind") == Some("Shoot"));
    let [shoot] = manifests.as_slice() else {
        eprintln!("repot: {} has {} Shoots, and one is wanted", flags.shoot.display(), manifests.len());
        return Ok(ExitCode::from(USAGE));
    };
    let end = CancellationToken::new();
    let world = flags.facts.world(Serve::Garden, &end).await?;
    let synced = async {
        while !world.missing().is_empty() {
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(SYNC_DEADLINE, synced).await.is_err() {
        bail!("failed to list {} within {SYNC_DEADLINE:?}", world.missing().join(", "));
    }
    let mut change = change(shoot, &flags.to, flags.live);
    let facts =
        world.gather(&SEED_CHANGE, &change, SYNC_DEADLINE).await.context("failed to gather the facts")?;
    if facts.binding {
        change.target.subresource = "binding".to_owned();
    }
    let findings = judge(&change, &facts);
    let allowed = judge::allows(&findings);
    let distance = Shoot(shoot)
        .spec_seed()
        .and_then(|from| distance::between(from, &flags.to, Shoot(shoot), &facts).distance());
    let text = match flags.output {
        Output::Json => render_json(allowed, &findings, distance),
        Output::Text => render_text(&change, &flags.to, &findings, distance),
    };
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")?;
    Ok(if allowed { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}

/// The write that somebody would make.
fn change(shoot: &Value, to: &str, live: bool) -> Change {
    let mut new = shoot.clone();
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("seedName".to_owned(), json!(to));
    }
    if live && let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(LIVE_MIGRATE.to_owned(), json!("true"));
        }
    }
    let text = |pointer| text_at(shoot, pointer).unwrap_or_default().to_owned();
    let target = Target {
        group: repot_api::names::CORE_GROUP.to_owned(),
        resource: "shoots".to_owned(),
        subresource: String::new(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    };
    Change { operation: Operation::Update, target, user: User::default(), old: shoot.clone(), new }
}

/// What both webhooks would say, each finding once.
fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let mut findings = judge::validate(&SEED_CHANGE, change, facts);
    for finding in judge::validate(&MARKERS, change, facts) {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    if Shoot(&change.old).spec_seed() == Shoot(&change.new).spec_seed() {
        let mut finding =
            Finding::refuse("spec.seedName", "the Shoot is on this seed already", "name another seed");
        finding.rule = "different-seed";
        if !findings.iter().any(|other| other.rule == finding.rule) {
            findings.push(finding);
        }
    }
    findings
}

fn render_json(allowed: bool, findings: &[Finding], distance: Option<u64>) -> String {
    let one = |finding: &Finding| {
        let refused = finding.verdict == Verdict::Refuse;
        json!({
            "rule": finding.rule, "field": finding.field, "message": finding.message(),
            "verdict": if refused { "refuse" } else { "warn" },
        })
    };
    let findings: Vec<Value> = findings.iter().map(one).collect();
    format!("{}\n", json!({"allowed": allowed, "findings": findings, "distance": distance}))
}

fn render_text(change: &Change, to: &str, findings: &[Finding], distance: Option<u64>) -> String {
    let (target, shoot) = (&change.target, Shoot(&change.old));
    let live = Shoot(&change.new).trigger() == Trigger::Live;
    let verdict = if judge::allows(findings) { "may move" } else { "may not move" };
    let mut text = format!(
        "Shoot {}/{} {verdict} from seed {} to seed {to}{}.\n",
        target.namespace,
        target.name,
        shoot.spec_seed().unwrap_or("(none)"),
        if live { ", live" } else { "" }
    );
    let distance = distance.map_or_else(|| "not known".to_owned(), |distance| distance.to_string());
    text.push_str(&format!("Distance: {distance}\n"));
    for finding in findings {
        let mark = if finding.verdict == Verdict::Refuse { "refused" } else { "warning" };
        text.push_str(&format!("  {mark}  {}: {} ({})\n", finding.field, finding.message(), finding.rule));
    }
    text
}
