//! `repot isolate`: a zone of many Shoots is left, or used again.

use std::{
    collections::BTreeMap, fmt::Write as _, io::Write, num::NonZeroUsize, process::ExitCode, time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use kube::Client;
use repot_console::text::one_line;
use repot_controllers::isolation::bulk::{Bulk, Key, Memory, Progress, Seen, ZoneTask};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{garden::GardenFlags, run::stop_on_signals};

/// Some Shoots are not done.
const NOT_DONE: u8 = 3;
const LOOK: Duration = Duration::from_secs(2);
/// How long the garden may take to answer.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the garden may not be read, one time after the other.
const READ_FAILURES: u32 = 15;

/// Isolate a zone of many Shoots, some at a time, or use it again with --undo.
///
/// The zone is named by the provider's ID. Without --yes it says which Shoots there are, and changes nothing. With it, progress goes to
/// standard error and a report by Shoot to standard output. After Ctrl-C no other Shoot begins, and the report comes at once; those that
/// have begun go on. The same command goes on from where it was left.
/// Exit codes: 0 all are done, 3 some are not, 2 bad usage, 1 failure.
///
///     repot isolate --zone euc1-az1 --selector env=prod --all-namespaces --kubeconfig garden.yaml --yes
///     repot isolate --zone euc1-az1 --all-namespaces --undo --yes
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// The provider's ID of the zone
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    zone: String,
    /// Labels of the Shoots [default: all Shoots]
    #[arg(short = 'l', long, default_value = "", hide_default_value = true, value_name = "LABELS")]
    selector: String,
    #[command(flatten)]
    garden: GardenFlags,
    /// Namespace of the Shoots [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Shoots of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Use the zone again
    #[arg(long)]
    undo: bool,
    /// How many Shoots may be on their way at once
    #[arg(long, default_value = "5", value_name = "COUNT")]
    max_parallel: NonZeroUsize,
    /// No other Shoot begins after so many that were refused or take too long
    #[arg(long, default_value = "3", value_name = "COUNT")]
    max_failures: NonZeroUsize,
    /// Change the Shoots; without it nothing is changed
    #[arg(long)]
    yes: bool,
    /// After so long no other Shoot begins, and the report comes at once; those that have begun go on [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = crate::serving::duration, requires = "yes")]
    timeout: Option<Duration>,
    /// Form of the report
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Use a zone of many Shoots again, some at a time: `isolate --undo`.
///
/// Without --yes it says which Shoots there are, and changes nothing.
/// Exit codes: 0 all are done, 3 some are not, 2 bad usage, 1 failure.
///
///     repot failback --zone euc1-az1 --all-namespaces --kubeconfig garden.yaml --yes
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct FailbackFlags {
    #[command(flatten)]
    flags: Flags,
}

/// The same as [`run`], towards the use of the zone.
pub async fn failback(flags: FailbackFlags) -> anyhow::Result<ExitCode> {
    run(Flags { undo: true, ..flags.flags }).await
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Prints the report; the exit code says whether all Shoots are done.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let garden = flags.garden.connect().await?;
    let namespace = match flags.all_namespaces {
        true => None,
        false => Some(flags.namespace.clone().unwrap_or_else(|| garden.default_namespace().to_owned())),
    };
    let bulk = Bulk {
        zone: flags.zone.clone(),
        task: if flags.undo { ZoneTask::UseAgain } else { ZoneTask::Isolate },
        most: flags.max_parallel.get(),
        failures: flags.max_failures.get(),
    };
    let work = Work { garden, namespace, selector: flags.selector.clone(), bulk };
    let all = match flags.yes {
        true => work.to_its_end(flags.timeout).await?,
        false => work.bulk.progress(&work.read().await?, &mut Memory::default()),
    };
    let text = match flags.output {
        Output::Json => json(&all),
        Output::Text => text(&all),
    };
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")?;
    let left = all.values().filter(|one| !one.is_settled()).count();
    if !flags.yes && left > 0 {
        eprintln!("repot: nothing was changed; --yes changes {left} Shoots");
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
}

/// The Shoots, and what is to be done with them.
struct Work {
    garden: Client,
    namespace: Option<String>,
    selector: String,
    bulk: Bulk,
}

impl Work {
    async fn read(&self) -> anyhow::Result<Seen> {
        let seen = self.bulk.read(&self.garden, self.namespace.as_deref(), &self.selector);
        let seen = tokio::time::timeout(LIMIT, seen).await.context("the garden does not answer")?;
        seen.context("failed to read the Shoots")
    }

    /// Writes the annotation of a Shoot; the answer is why it is refused. Without one the next look tells whether it was written.
    async fn begin(&self, seen: &Seen, key: &Key) -> Option<String> {
        tokio::time::timeout(LIMIT, self.bulk.begin(&self.garden, seen, key)).await.unwrap_or_default()
    }

    /// Until all are done, or none begins any more and none is on its way, or a signal, or a time.
    async fn to_its_end(&self, timeout: Option<Duration>) -> anyhow::Result<BTreeMap<Key, Progress>> {
        let stop = stop_on_signals()?;
        if let Some(timeout) = timeout {
            tokio::spawn(stop_after(timeout, stop.clone()));
        }
        let (mut memory, mut latest, mut failures) = (Memory::default(), None, 0);
        loop {
            match stop.run_until_cancelled(self.read()).await {
                Some(Ok(seen)) => {
                    failures = 0;
                    let all = self.bulk.progress(&seen, &mut memory);
                    tell(&all, latest.as_ref());
                    let next = self.bulk.next(&all);
                    if next.is_empty() && !all.values().any(Progress::is_under_way) {
                        return Ok(all);
                    }
                    let all = latest.insert(all);
                    for key in next.into_iter().take_while(|_| !stop.is_cancelled()) {
                        let refused = self.begin(&seen, &key).await;
                        all.insert(key.clone(), begun(refused.as_ref()));
                        memory.refused.extend(refused.map(|why| (key, why)));
                    }
                }
                // A garden that does not answer for a moment ends nothing.
                Some(Err(error)) if failures < READ_FAILURES => {
                    failures += 1;
                    eprintln!("repot: {error:#}; trying again");
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
            let pause = tokio::time::sleep(LOOK);
            if stop.run_until_cancelled(pause).await.is_none() {
                return latest.context("the Shoots were not read in time");
            }
        }
    }
}

/// What is known of a Shoot until the next look.
fn begun(refused: Option<&String>) -> Progress {
    match refused {
        Some(why) => Progress::Refused(why.clone()),
        None => Progress::Working("its annotation was asked for".to_owned()),
    }
}

async fn stop_after(timeout: Duration, stop: CancellationToken) {
    tokio::time::sleep(timeout).await;
    stop.cancel();
}

/// What has changed since it was told last.
fn tell(all: &BTreeMap<Key, Progress>, told: Option<&BTreeMap<Key, Progress>>) {
    let done = all.values().filter(|one| **one == Progress::Done).count();
    for (key, progress) in all {
        let is_new = told.and_then(|told| told.get(key)) != Some(progress);
        if is_new && !matches!(progress, Progress::Waiting | Progress::Elsewhere) {
            eprintln!("{done}/{} {}/{} {}", all.len(), key.0, key.1, one_line(&words(progress)));
        }
    }
}

fn words(progress: &Progress) -> String {
    match progress {
        Progress::Waiting => "not begun".to_owned(),
        Progress::Working(message) => format!("on its way: {message}"),
        Progress::Late(message) => format!("takes long: {message}"),
        Progress::Refused(why) => format!("refused: {why}"),
        Progress::Done => "done".to_owned(),
        Progress::Elsewhere => "does not use the zone".to_owned(),
    }
}

fn text(all: &BTreeMap<Key, Progress>) -> String {
    let width =
        all.keys().map(|(namespace, name)| namespace.len() + name.len() + 1).max().unwrap_or_default();
    let mut text = String::new();
    for ((namespace, name), progress) in all {
        let shoot = format!("{namespace}/{name}");
        let _ = writeln!(text, "{shoot:width$}  {}", one_line(&words(progress)));
    }
    let done = all.values().filter(|one| **one == Progress::Done).count();
    let used = all.values().filter(|one| **one != Progress::Elsewhere).count();
    let _ = writeln!(text, "{done} of {used} Shoots are done");
    text
}

fn json(all: &BTreeMap<Key, Progress>) -> String {
    let line = |((namespace, name), progress): (&Key, &Progress)| {
        let mut line = json!(progress);
        line["namespace"] = json!(namespace);
        line["shoot"] = json!(name);
        line
    };
    format!("{}\n", json!({"shoots": all.iter().map(line).collect::<Vec<_>>()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shoot_that_has_just_begun_is_not_reported_as_not_begun() {
        let refused = "zone z2 is isolated".to_owned();
        assert_eq!(words(&begun(None)), "on its way: its annotation was asked for");
        assert_eq!(words(&begun(Some(&refused))), "refused: zone z2 is isolated");
    }

    #[test]
    fn report_names_each_shoot_and_what_it_waits_for() {
        let key = |name: &str| ("garden-dev".to_owned(), name.to_owned());
        let all = BTreeMap::from([
            (key("alpha"), Progress::Done),
            (key("b"), Progress::Late("2 machines are left".to_owned())),
        ]);
        let expected = "garden-dev/alpha  done\n\
                        garden-dev/b      takes long: 2 machines are left\n\
                        1 of 2 Shoots are done\n";
        assert_eq!(text(&all), expected);
        let parsed: serde_json::Value = serde_json::from_str(&json(&all)).expect("JSON");
        assert_eq!(parsed["shoots"][1]["state"], "Late");
        assert_eq!(parsed["shoots"][1]["message"], "2 machines are left");
        assert_eq!(parsed["shoots"][0]["shoot"], "alpha");
    }
}
