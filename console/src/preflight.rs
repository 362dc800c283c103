//! May this Shoot move to that seed: what the rules say, and what the API server says to the same write as a dry run.

use std::time::Duration;

use repot_api::gardener::shoot::{Shoot, Trigger};
use repot_rules::{
    change::Change,
    distance,
    facts::Facts,
    finding::{Finding, Verdict},
    judge, preflight,
    watch::SEED_CHANGE,
};
use repot_webhook::{
    facts::World,
    garden::{self, DryRun, Garden},
};
use serde_json::{Value, json};

use crate::text::one_line;

const SYNC_DEADLINE: Duration = Duration::from_secs(60);
/// How long one request to the garden may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// There is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kinds were not listed in time.
    #[error("failed to list {kinds} from {server} within {} s", SYNC_DEADLINE.as_secs())]
    NotListed {
        /// Which.
        kinds: String,
        /// From where.
        server: String,
    },
    /// The facts cannot be read.
    #[error("failed to gather facts from {server}")]
    Facts {
        /// From where.
        server: String,
        /// Why.
        #[source]
        source: repot_webhook::facts::Error,
    },
    /// The garden cannot be asked.
    #[error(transparent)]
    Garden(#[from] garden::Error),
    /// The garden does not answer.
    #[error("{server} does not answer within {} s", ANSWER_DEADLINE.as_secs())]
    Late {
        /// URL of its API server.
        server: String,
    },
}

/// Asks the rules, and the garden where there is one.
///
/// # Errors
/// [`Error`]; a refusal is an answer.
pub async fn ask(
    shoot: &Value,
    (to, live): (&str, bool),
    world: &World,
    garden: Option<&Garden>,
) -> Result<Answer, Error> {
    let server = garden.map_or("the directory of facts", Garden::server);
    if let Some(garden) = garden {
        in_time(server, garden.check_access()).await?;
    }
    wait_for_facts(world, server).await?;
    let question = |binding| preflight::change(shoot, to, live, binding);
    let facts = world.gather(&SEED_CHANGE, &question(false), SYNC_DEADLINE).await;
    let facts = facts.map_err(|source| Error::Facts { server: server.to_owned(), source })?;
    let change = question(facts.binding);
    let dry_run = match garden {
        Some(garden) => Some(in_time(server, garden.dry_run(&change)).await?),
        None => None,
    };
    Ok(Answer::new(change, &facts, dry_run))
}

async fn in_time<T>(
    server: &str,
    answer: impl Future<Output = Result<T, garden::Error>>,
) -> Result<T, Error> {
    let late = |_| Error::Late { server: server.to_owned() };
    Ok(tokio::time::timeout(ANSWER_DEADLINE, answer).await.map_err(late)??)
}

async fn wait_for_facts(world: &World, server: &str) -> Result<(), Error> {
    let synced = async {
        while !world.missing().is_empty() {
            tokio::time::sleep(POLL).await;
        }
    };
    let late = || Error::NotListed { kinds: world.missing().join(", "), server: server.to_owned() };
    tokio::time::timeout(SYNC_DEADLINE, synced).await.map_err(|_| late())
}

/// What the rules and the server say.
pub struct Answer {
    change: Change,
    findings: Vec<Finding>,
    distance: Option<u64>,
    dry_run: Option<DryRun>,
    allowed: bool,
}

impl Answer {
    /// From what was gathered.
    #[must_use]
    pub fn new(change: Change, facts: &Facts, dry_run: Option<DryRun>) -> Self {
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

    /// Whether neither a rule nor the server is against it.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// One object in one line. Without a cluster there is no `dryRun`.
    #[must_use]
    pub fn json(&self) -> String {
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

    /// The same for people.
    #[must_use]
    pub fn text(&self) -> String {
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
                one_line(&finding.message()),
                finding.rule
            ));
        }
        if let Some(dry_run) = &self.dry_run {
            let (verdict, message) = described(dry_run);
            let message = message.map(|message| format!(": {}", one_line(message))).unwrap_or_default();
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
