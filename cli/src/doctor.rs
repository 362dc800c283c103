//! `repot doctor`: whether an installation is well, and what a maintainer needs to know of it.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use jiff::Timestamp;
use repot_console::{
    doctor::{
        bundle::{self, archive},
        finding::{Finding, Report},
        run::run as run_checks,
        survey::Survey,
    },
    objects::Objects,
};

use crate::{
    garden::ClusterFlags,
    operate::{NO, Output, answer, name},
    run::stop_on_signals,
    serving::duration,
};

/// Check an installation of Repot in a garden or on a seed, and say what to do; collect what a maintainer needs.
///
/// It reads and changes nothing. It asks with your rights: what you may not read is shown as "not checked". Each check has a time of its
/// own, and none stops the others. Ask the garden and each seed by its own kubeconfig.
/// With --bundle it writes findings, versions, objects of Repot, events, and the ends of the logs of its Pods into one archive. No Secret is
/// read for it and no payload of a ShootState. Tokens, keys and passwords are removed from the rest, as far as they can be told from other text:
/// look into the archive before you send it to anybody.
/// Exit codes: 0 no problem was found, 3 a problem was found, 2 bad usage, 1 failure.
///
///     repot doctor --kubeconfig garden.yaml
///     kubectl repot doctor --context seed-a --output json
///     repot doctor --kubeconfig seed.yaml --bundle repot-seed-a.tar.gz
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Look at Shoots, migrations and etcds of this namespace alone [default: all namespaces]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name)]
    namespace: Option<String>,
    /// Where Repot is installed, beside the namespaces of the Pods that are found
    #[arg(long, value_name = "NAMESPACE", default_value = "repot-system", value_parser = name)]
    repot_namespace: String,
    /// Also read the Secrets of serving certificates, to see when these end; nothing but certificates is looked at
    #[arg(long, conflicts_with = "bundle")]
    read_secrets: bool,
    /// How long each check may take
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    timeout: Duration,
    /// Write an archive for a maintainer: a tar file in gzip that only you may read
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "bundle")]
    force: bool,
    /// How long the collection for the archive may take
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m", requires = "bundle")]
    bundle_timeout: Duration,
    /// Form of the answer; `wide` names each object that is well
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the findings; the exit code says whether one of them is a problem.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    if let Some(path) = &flags.bundle {
        archive::check(path, flags.force)?;
    }
    let stop = stop_on_signals()?;
    match stop.run_until_cancelled(examine(&flags)).await {
        Some(code) => code,
        None => anyhow::bail!("interrupted; nothing was written"),
    }
}

async fn examine(flags: &Flags) -> anyhow::Result<ExitCode> {
    let survey = match survey(flags).await {
        Ok(survey) => Arc::new(survey),
        Err(finding) => {
            let report = Report { findings: vec![finding] };
            answer(flags.output, &report, |wide| report.text(wide))?;
            return Ok(ExitCode::from(NO));
        }
    };
    let report = run_checks(survey.clone(), flags.timeout).await;
    answer(flags.output, &report, |wide| report.text(wide))?;
    if let Some(path) = &flags.bundle {
        eprintln!("repot: collecting for {}", path.display());
        let bundle = bundle::collect(&survey, &report, flags.bundle_timeout).await;
        archive::save(&bundle, path, flags.force, Timestamp::now())?;
        let (files, missing) = (bundle.files().len(), bundle.missing().len());
        eprintln!("repot: {} has {files} files, {missing} could not be collected", path.display());
        eprintln!("repot: look into it before you send it to anybody");
    }
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// Without an API server there is one finding, and nothing else can be looked at.
async fn survey(flags: &Flags) -> Result<Survey, Finding> {
    const CHECK: &str = "connection";
    let config = flags.cluster.config().await.map_err(|error| {
        let advice = "name a kubeconfig by --kubeconfig, or a context of it by --context";
        Finding::problem(CHECK, "kubeconfig", format!("{error:#}"), advice)
    })?;
    let server = without_user(&config.cluster_url.to_string());
    let failed = |message: String| {
        let advice = "see whether this machine reaches the API server, and whether the credentials of the kubeconfig are valid";
        Finding::problem(CHECK, &server, message, advice)
    };
    let client = kube::Client::try_from(config).map_err(|error| failed(error.to_string()))?;
    let objects = Objects::new(client, flags.timeout);
    let taken = Survey::take(objects, server.clone(), &flags.repot_namespace, flags.namespace.clone());
    let mut survey = taken.await.map_err(|error| failed(error.to_string()))?;
    survey.may_read_secrets = flags.read_secrets;
    Ok(survey)
}

/// A URL as it may be shown: without user and password.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{}", rest[authority.len()..].trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_shown_without_credentials() {
        assert_eq!(without_user("https://u:p@host:6443/"), "https://host:6443");
        assert_eq!(without_user("https://host/prefix"), "https://host/prefix");
    }
}
