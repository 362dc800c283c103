//! `repot etcd`: hosted etcds of a seed, their backups, and what makes them anew.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use repot_console::{
    etcd::{
        hosted::{HostedEtcd, Settings},
        read,
        request::{self, Options, Refusal, Request},
        screen,
        workflow::Workflow,
    },
    objects::Objects,
    text::one_line,
};
use serde_json::{Value, json};

use crate::{
    garden::ClusterFlags,
    operate::{NO, Output, agree, answer, name, usage},
    run::stop_on_signals,
    serving::duration,
};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(30);
/// How long between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// How often the cluster may not be read, one time after the other.
const READ_FAILURES: u32 = 60;

/// Show hosted etcds of a seed; back them up, restore them, give them other volumes.
///
/// The kubeconfig is that of the seed. `backup`, `restore` and `migrate` create an EtcdBackup, EtcdRestore or EtcdMigration, which the controllers
/// of the seed carry out. `restore` and `migrate` stop the API servers meanwhile, and ask before; without a terminal they need --yes.
/// Exit codes: 0 done, 3 it was not done, or not within the time, 2 bad usage, 1 failure.
///
///     repot etcd list --all-namespaces --kubeconfig seed.yaml
///     repot etcd status main -n shoot--dev--alpha
///     repot etcd backup main -n shoot--dev--alpha --name monday --wait
///     repot etcd restore main -n shoot--dev--alpha --backup monday --wait --yes
///     repot etcd migrate main -n shoot--dev--alpha --storage-class fast --size 25Gi
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// List hosted etcds, with their last backup and the workflow that works on each
    List(ListFlags),
    /// Show one hosted etcd: members, conditions, what runs, the last backups
    Status(StatusFlags),
    /// Take one backup now; it counts after it was restored elsewhere and compared
    Backup(BackupFlags),
    /// Put an etcd back to a backup; what was written after it is lost
    Restore(RestoreFlags),
    /// Make an etcd anew from a backup of itself, with another storage class, size or number of members
    Migrate(MigrateFlags),
}

/// In which cluster and namespace.
#[derive(Args)]
struct SeedFlags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Namespace of the control plane [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name)]
    namespace: Option<String>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Args)]
struct ListFlags {
    #[command(flatten)]
    seed: SeedFlags,
    /// Hosted etcds of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

#[derive(Args)]
struct StatusFlags {
    /// Name of the HostedEtcd
    #[arg(value_name = "ETCD", value_parser = name)]
    etcd: String,
    #[command(flatten)]
    seed: SeedFlags,
}

/// What the three commands share that create something.
#[derive(Args)]
struct CreateFlags {
    /// Name of the HostedEtcd
    #[arg(value_name = "ETCD", value_parser = name)]
    etcd: String,
    #[command(flatten)]
    seed: SeedFlags,
    /// Name of the object that is created; that of a backup is the name of its EtcdBackup [default: that of the etcd, and the time]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// How long each step may take [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = duration_text)]
    step_timeout: Option<String>,
    /// Ask the API server whether it would be created, and create nothing
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Wait for the end, and tell each step on standard error
    #[arg(long)]
    wait: bool,
    /// Stop waiting after so long; what was created goes on
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h", requires = "wait")]
    timeout: Duration,
    /// Ask nothing
    #[arg(long)]
    yes: bool,
}

#[derive(Args)]
struct BackupFlags {
    #[command(flatten)]
    create: CreateFlags,
}

#[derive(Args)]
struct RestoreFlags {
    #[command(flatten)]
    create: CreateFlags,
    /// Name of the backup, as an EtcdBackup has it in status.backupName
    #[arg(long, value_name = "BACKUP", value_parser = name)]
    backup: String,
}

#[derive(Args)]
struct MigrateFlags {
    #[command(flatten)]
    create: CreateFlags,
    /// StorageClass of the new volumes
    #[arg(long, value_name = "NAME", value_parser = name)]
    storage_class: Option<String>,
    /// Size of each new volume, such as 25Gi
    #[arg(long, value_name = "QUANTITY", value_parser = size)]
    size: Option<String>,
    /// Number of members, odd
    #[arg(long, value_name = "NUMBER")]
    replicas: Option<i64>,
}

/// Runs the task; the exit code says whether it is done.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    match flags.task {
        Task::List(flags) => list(flags).await,
        Task::Status(flags) => status(flags).await,
        Task::Backup(flags) => {
            create(&flags.create, async |_, hosted, options, now| Ok(request::backup(hosted, options, now)))
                .await
        }
        Task::Restore(flags) => {
            create(&flags.create, async |cluster, hosted, options, now| {
                let all = read::workflows(cluster, Some(&hosted.namespace), Some(&hosted.name)).await?;
                Ok(request::restore(hosted, (&flags.backup, &all), options, now))
            })
            .await
        }
        Task::Migrate(flags) => {
            let wanted = Settings {
                replicas: flags.replicas,
                size: flags.size.clone(),
                storage_class_name: flags.storage_class.clone(),
            };
            create(&flags.create, async |_, hosted, options, now| {
                Ok(request::migration(hosted, &wanted, options, now))
            })
            .await
        }
    }
}

fn size(text: &str) -> Result<String, String> {
    repot_apimachinery::formats::storage_size(text).map(|()| text.to_owned())
}

/// A duration in the form in which it was written.
fn duration_text(text: &str) -> Result<String, String> {
    duration(text).map(|_| text.to_owned())
}

impl SeedFlags {
    async fn connect(&self) -> anyhow::Result<(Objects, String)> {
        let client = self.cluster.connect().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        Ok((Objects::new(client, REQUEST), namespace))
    }
}

async fn list(flags: ListFlags) -> anyhow::Result<ExitCode> {
    let (cluster, namespace) = flags.seed.connect().await?;
    let namespace = (!flags.all_namespaces).then_some(namespace.as_str());
    let all = read::hosted_etcds(&cluster, namespace).await?;
    let workflows = read::workflows(&cluster, namespace, None).await?;
    let now = Timestamp::now();
    let object = json!({"hostedEtcds": all, "workflows": workflows});
    answer(flags.seed.output, &object, |wide| screen::list(&all, &workflows, wide, now))?;
    Ok(ExitCode::SUCCESS)
}

async fn status(flags: StatusFlags) -> anyhow::Result<ExitCode> {
    let (cluster, namespace) = flags.seed.connect().await?;
    let hosted = read::hosted_etcd(&cluster, &namespace, &flags.etcd).await?;
    let workflows = read::workflows(&cluster, Some(&namespace), Some(&flags.etcd)).await?;
    let now = Timestamp::now();
    let object = json!({"hostedEtcd": hosted, "workflows": workflows});
    answer(flags.seed.output, &object, |wide| screen::status(&hosted, &workflows, wide, now))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a request, asks whether it is wanted, creates it, and waits if that is asked for.
async fn create(
    flags: &CreateFlags,
    request: impl AsyncFnOnce(
        &Objects,
        &HostedEtcd,
        &Options,
        Timestamp,
    ) -> anyhow::Result<Result<Request, Refusal>>,
) -> anyhow::Result<ExitCode> {
    let (cluster, namespace) = flags.seed.connect().await?;
    let hosted = read::hosted_etcd(&cluster, &namespace, &flags.etcd).await?;
    let options = Options { name: flags.name.clone(), step_timeout: flags.step_timeout.clone() };
    let request = match request(&cluster, &hosted, &options, Timestamp::now()).await? {
        Ok(request) => request,
        Err(Refusal::NoSettings) => return Ok(usage(&Refusal::NoSettings.to_string())),
        Err(refusal) => {
            eprintln!("repot: {}", one_line(&refusal.to_string()));
            return Ok(ExitCode::from(NO));
        }
    };
    for note in &request.notes {
        eprintln!("repot: {}", one_line(note));
    }
    if let Some(question) = request.question.as_ref().filter(|_| !flags.dry_run)
        && let Err(code) = agree(&one_line(question), flags.yes)
    {
        return Ok(code);
    }
    let kind = request.kind;
    let made = cluster.create(&kind.kind(), Some(&namespace), &request.object, flags.dry_run).await?;
    let workflow = Workflow::new(kind, &made);
    if flags.wait {
        return wait(&cluster, &workflow, flags).await;
    }
    let done = if flags.dry_run { "would be created" } else { "was created" };
    let says = format!("{} {} {done}\n", kind.kind().kind, workflow.key());
    answer(flags.seed.output, &made, |_| says)?;
    Ok(ExitCode::SUCCESS)
}

/// Tells each step until the end, a signal, or a time. The answer is the object as it is then.
async fn wait(cluster: &Objects, made: &Workflow, flags: &CreateFlags) -> anyhow::Result<ExitCode> {
    let (stop, begun) = (stop_on_signals()?, Instant::now());
    let (mut failures, mut told) = (0, Told::default());
    eprintln!("{} {} was created", made.kind.kind().kind, made.key());
    loop {
        let looked = read::workflow(cluster, made.kind, &made.namespace, &made.name);
        match stop.run_until_cancelled(looked).await {
            Some(Ok((workflow, object))) => {
                failures = 0;
                told.tell(&workflow);
                if workflow.is_over() {
                    return ended(&workflow, &object, flags.seed.output);
                }
            }
            // An API server that does not answer for a moment ends nothing.
            Some(Err(error)) if failures < READ_FAILURES && !is_final(&error) => {
                failures += 1;
                eprintln!("repot: {error}; trying again");
            }
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
        let is_late = begun.elapsed() >= flags.timeout;
        if is_late || stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_none() {
            let why = if is_late { "it has not ended in time, and" } else { "it" };
            eprintln!("repot: {why} goes on: repot etcd status {} -n {}", made.cluster, made.namespace);
            return Ok(ExitCode::from(NO));
        }
    }
}

/// Whether another look would say the same.
fn is_final(error: &repot_console::objects::Error) -> bool {
    use repot_console::objects::Error;
    matches!(error, Error::Missing(_) | Error::Forbidden { .. } | Error::NotServed { .. })
}

fn ended(workflow: &Workflow, object: &Value, output: Output) -> anyhow::Result<ExitCode> {
    let now = Timestamp::now();
    answer(output, object, |_| screen::workflow(workflow, now)).context("failed to show what has ended")?;
    Ok(if workflow.has_succeeded() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// What was told last.
#[derive(Default)]
struct Told {
    steps: Vec<(String, String)>,
    phase: String,
}

impl Told {
    /// One line on standard error for each step that has changed, with how many are done of those of its table.
    fn tell(&mut self, workflow: &Workflow) {
        let is_done = |state: &str| matches!(state, "Succeeded" | "Skipped" | "RolledBack");
        let done = workflow.steps.iter().filter(|step| is_done(&step.state)).count();
        let of = workflow.steps.len().max(workflow.kind.steps());
        for step in workflow.steps.iter().filter(|step| step.state != "Pending") {
            let seen = (step.name.clone(), step.state.clone());
            if self.steps.contains(&seen) {
                continue;
            }
            let time = step.completed.or(step.started).map(|time| time.to_string()).unwrap_or_default();
            eprintln!("{time} {done}/{of} {} {}: {}", step.name, step.state, step.message);
            self.steps.retain(|(name, _)| *name != step.name);
            self.steps.push(seen);
        }
        if self.phase != workflow.phase {
            self.phase.clone_from(&workflow.phase);
            let says = if workflow.message.is_empty() { "" } else { ": " };
            let (kind, key) = (workflow.kind.kind().kind, workflow.key());
            eprintln!("{kind} {key} {}{says}{}", workflow.phase, workflow.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use repot_console::etcd::workflow::WorkflowKind;

    #[test]
    fn sizes_are_quantities() {
        assert_eq!(size("25Gi"), Ok("25Gi".to_owned()));
        assert!(size("much").is_err() && size("-1Gi").is_err());
    }

    #[test]
    fn step_is_told_once_for_each_state() {
        let mut told = Told::default();
        let of = |state: &str| {
            let object =
                json!({"status": {"phase": "Running", "steps": [{"name": "ApiDown", "state": state}]}});
            Workflow::new(WorkflowKind::Restore, &object)
        };
        for state in ["Pending", "Running", "Running", "Succeeded"] {
            told.tell(&of(state));
        }
        assert_eq!(told.steps, [("ApiDown".to_owned(), "Succeeded".to_owned())]);
        assert_eq!(told.phase, "Running");
    }
}
