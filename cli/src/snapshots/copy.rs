//! `repot snapshots copy`.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use repot_etcd::{
    agent::supervisor::STOP,
    copy_progress::CopyCounter,
    owner::{Settings, handover},
    snapshot::{
        copy::{self, Outcome, Progress, Report, Scope},
        store::{SentBytes, Store},
    },
};
use repot_etcd_core::{copy_progress::CopyPhase, snapshot::SnapshotName};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::{NO, Output, open_both, print, print_json, progress::Bar};
use crate::serving::duration;

/// Copy the snapshots of one store to another, newest first. Nothing is ever removed or changed at the source.
///
/// Every snapshot is read to its end at the source with all checks, and appears at the target only when they have passed; then it
/// is read back there and compared. Run it again after any interruption: what is whole at the target is left alone, what is cut
/// or changed there is copied again. The suffix .final is kept.
///
/// With --wait-for-final it first waits until the source has a final snapshot that nothing came after. Without one at the
/// deadline, --on-deadline says what happens: `fail` copies nothing and exits with 3; `copy` copies what there is.
/// With --owner it first waits until no owner before can serve any more, final snapshot or not, and records that at the target as
/// handover.json: the record has named the own id for long enough, or the final snapshot names the epoch before.
/// --wait-for-final counts from when the record was first seen to name the own id. While it waits, it copies what there is already, unless
/// --on-deadline is `fail`.
///
/// With --scope newest it copies what a restore of the newest state needs, so that an etcd can begin; then --scope older copies the
/// rest, and whoever reads the target is still led to what that etcd writes.
///
/// Credentials of the source alone: put SOURCE_ before the names of the variables, such as SOURCE_AWS_ACCESS_KEY_ID.
///
///     repot snapshots copy --source s3://seed-a/shoot--p--a --target s3://seed-b/shoot--p--a --wait-for-final 10m
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// The store to copy from
    #[arg(long, value_name = "URL")]
    source: String,
    /// The store to copy to
    #[arg(long, value_name = "URL")]
    target: String,
    /// Wait so long for the final snapshot
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait_for_final: Option<Duration>,
    /// What to do when it does not come
    #[arg(long, value_enum, default_value_t = OnDeadline::Fail, requires = "wait_for_final")]
    on_deadline: OnDeadline,
    /// The owner's record, as `owner` in the configuration of the agent, in JSON
    #[arg(long, value_name = "JSON", value_parser = owner)]
    owner: Option<Settings>,
    /// Which snapshots are copied
    #[arg(long, value_enum, default_value_t = ScopeFlag::All)]
    scope: ScopeFlag,
    /// So many snapshots at once; of those beyond 8 MiB, no more than two
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: u16,
    /// Count a source without any snapshot as success; otherwise it is answered with exit code 3
    #[arg(long)]
    allow_empty: bool,
    /// Believe the recorded length and hash of what is at the target already, without reading it again
    #[arg(long)]
    trust_target: bool,
    /// Tell at this port, by HTTP at /progress, how far the copy is: counts and times, and nothing else
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    progress_port: Option<u16>,
    /// The address for that [default: every address]
    #[arg(long, value_name = "ADDRESS", env = "POD_IP", hide_env_values = true)]
    progress_address: Option<IpAddr>,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// How long the store has to list a final snapshot, whatever time is left.
const LAST_LOOK: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScopeFlag {
    All,
    Newest,
    Older,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnDeadline {
    Fail,
    Copy,
}

/// Copies the snapshots of one store to another and prints what became of them. Exit codes are those of `repot snapshots`.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let (source, target) = match open_both(&flags.source, &flags.target) {
        Ok(stores) => stores,
        Err(code) => return Ok(code),
    };
    let sent = Arc::new(SentBytes::default());
    let (counter, target) = (Arc::new(CopyCounter::new(Arc::clone(&sent))), target.counting(sent));
    let _told = tell(&counter, &flags).await;
    let mut options = options(&flags);
    // A copy that fails at the deadline copies nothing.
    let may_fail = flags.wait_for_final.is_some() && flags.on_deadline == OnDeadline::Fail;
    let goes_ahead = (flags.owner.is_some() || flags.wait_for_final.is_some()) && !may_fail;
    let ahead = async {
        if goes_ahead { copy::copy_ahead(&source, &target, options.clone()).await } else { BTreeSet::new() }
    };
    // What was copied meanwhile does not lengthen the time in which nobody serves.
    let (waited, copied) = tokio::join!(wait_for_both(&flags, &source, &target, &counter), ahead);
    let found = match waited? {
        Ok(found) => found,
        Err(code) => return Ok(code),
    };
    options.copied = copied;
    counter.enter(CopyPhase::Copying);
    let bar = Bar::new("copying");
    let show = |progress| {
        counter.count(&progress);
        show(&bar, progress);
    };
    let report = copy::copy(&source, &target, options, show).await;
    bar.end();
    let report = report?;
    match flags.output {
        Output::Json => print_json(&render(&report, found.as_ref()))?,
        Output::Text => print(&summary(&report))?,
    }
    Ok(judge(&report, &flags))
}

/// Tells how far the copy is until the handle is dropped. That nobody can be told is no reason not to copy.
async fn tell(counter: &Arc<CopyCounter>, flags: &Flags) -> Option<AbortOnDropHandle<()>> {
    let ip = flags.progress_address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let address = SocketAddr::new(ip, flags.progress_port?);
    let served = Arc::clone(counter).serve(address).await;
    served.inspect_err(|error| tracing::warn!(%address, %error, "nobody is told how far the copy is")).ok()
}

fn owner(json: &str) -> Result<Settings, String> {
    let owner = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Settings::new(&owner, STOP).map_err(|wrong| wrong.join("; "))
}

fn options(flags: &Flags) -> copy::Options {
    let scope = match flags.scope {
        ScopeFlag::All => Scope::All,
        ScopeFlag::Newest => Scope::Newest,
        ScopeFlag::Older => Scope::Older,
    };
    let (parallel, trust_target) = (flags.parallel.into(), flags.trust_target);
    copy::Options { scope, copied: BTreeSet::new(), parallel, trust_target }
}

/// Waits until no owner before can serve any more, and for the final snapshot, as far as the flags say so.
async fn wait_for_both(
    flags: &Flags,
    source: &Store,
    target: &Store,
    counter: &CopyCounter,
) -> anyhow::Result<Result<Option<SnapshotName>, ExitCode>> {
    let mut waited = Duration::ZERO;
    if let Some(settings) = &flags.owner {
        let handover = handover::wait(settings, source, target).await?;
        tracing::info!(?handover, "the owner before does not serve any more");
        // A final snapshot is begun when the record changes, so what was waited before does not count.
        waited = Timestamp::now().duration_since(handover.named_since).try_into().unwrap_or_default();
    }
    let limit = flags.wait_for_final.map(|limit| limit.saturating_sub(waited).max(LAST_LOOK));
    counter.enter(CopyPhase::WaitingForFinalSnapshot);
    wait(source, limit, flags.on_deadline).await
}

/// The final snapshot, if it was waited for and came; the exit code if it did not and that matters.
async fn wait(
    source: &Store,
    limit: Option<Duration>,
    on_deadline: OnDeadline,
) -> anyhow::Result<Result<Option<SnapshotName>, ExitCode>> {
    let Some(limit) = limit else { return Ok(Ok(None)) };
    let outcome = copy::wait_for_final(source, limit).await;
    if on_deadline == OnDeadline::Fail {
        return Ok(match outcome? {
            Some(name) => {
                tracing::info!(snapshot = %name, "the final snapshot is there");
                Ok(Some(name))
            }
            None => {
                eprintln!("repot: no final snapshot within {limit:?}; nothing was copied");
                Err(ExitCode::from(NO))
            }
        });
    }
    let found = outcome.unwrap_or_default();
    if found.is_none() {
        tracing::warn!(?limit, "no final snapshot came; copying what there is");
    }
    Ok(Ok(found))
}

fn show(bar: &Bar, progress: Progress) {
    match progress {
        Progress::Begun { bytes, .. } => bar.expect(bytes),
        Progress::Done { name, bytes, outcome } => {
            tracing::debug!(snapshot = %name, ?outcome, "done");
            bar.add(bytes);
        }
        Progress::Failed { name, error } => {
            let error = anyhow::Error::from(error);
            tracing::error!(snapshot = %name, error = format!("{error:#}"), "not copied");
        }
    }
}

fn judge(report: &Report, flags: &Flags) -> ExitCode {
    if report.done.is_empty() && report.failed.is_empty() && !flags.allow_empty {
        eprintln!("repot: {} has no snapshots; --allow-empty accepts that", flags.source);
        return ExitCode::from(NO);
    }
    match report.failed.iter().map(|(_, error)| error.is_damage()).reduce(|a, b| a && b) {
        None => ExitCode::SUCCESS,
        Some(true) => ExitCode::from(NO),
        Some(false) => ExitCode::FAILURE,
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Copied => "copied",
        Outcome::Repaired => "repaired",
        Outcome::Present => "present",
    }
}

fn render(report: &Report, found: Option<&SnapshotName>) -> Value {
    let done = report.done.iter().map(|(name, bytes, outcome)| {
        json!({"snapName": name.to_string(), "bytes": bytes, "outcome": word(*outcome)})
    });
    let failed = report.failed.iter().map(|(name, error)| {
        let message = format!("{:#}", anyhow::Error::from(error.clone()));
        json!({"snapName": name.to_string(), "damaged": error.is_damage(), "message": message})
    });
    json!({
        "finalSnapshot": found.map(ToString::to_string),
        "snapshots": done.collect::<Vec<_>>(), "failed": failed.collect::<Vec<_>>(),
    })
}

fn summary(report: &Report) -> String {
    let count = |outcome| report.count(outcome);
    format!(
        "{} copied, {} repaired, {} present before, {} failed\n",
        count(Outcome::Copied),
        count(Outcome::Repaired),
        count(Outcome::Present),
        report.failed.len()
    )
}
