//! Is a named backup good? It is read to its end, restored elsewhere, and what was restored is read key by key.

use std::path::PathBuf;

use repot_etcd_core::{digest::Digest, snapshot::Revision};

use super::{
    Backups, Error, Result,
    record::{State, VERIFIED, Verdict},
    take::causes,
};
use crate::snapshot::{
    restore::{self, prove::Tools},
    verify::{self, Severity, What},
};

/// Where and by what it is restored.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory with room for three times the database.
    pub scratch: PathBuf,
    /// The programs etcd and etcdutl, for the restore.
    pub tools: Tools,
}

/// Proves a backup and writes down what came of it; where that was done before, it is only read.
///
/// # Errors
/// [`Error`] where nothing was found out, so that another try may. A backup that cannot be restored is no error but
/// [`Verdict::Corrupt`].
pub async fn prove(backups: &Backups, name: &str, options: &Options) -> Result<Verdict> {
    if let Some(verdict) = backups.verdict(name).await? {
        return Ok(verdict);
    }
    let taken = backups.taken(name).await?.filter(|taken| taken.state == State::Stored);
    let taken = taken.ok_or_else(|| Error::NotStored(name.to_owned()))?;
    let verdict = judge(backups, name, taken.revision.map(Revision), options).await?;
    backups.write(name, VERIFIED, &verdict).await?;
    Ok(verdict)
}

async fn judge(
    backups: &Backups,
    name: &str,
    recorded: Option<Revision>,
    options: &Options,
) -> Result<Verdict> {
    let store = backups.store(name)?;
    let report = verify::verify(&store, &options.scratch, 1, |_| {}).await?;
    let problems = report.findings.iter().filter(|finding| finding.severity == Severity::Problem);
    let problems: Vec<String> = problems
        // Whatever could not be read now is read again by the restore, which says why it cannot.
        .filter(|finding| finding.what != What::Unreadable)
        .map(|finding| format!("{}: {}", finding.snapshot, finding.message))
        .collect();
    if !problems.is_empty() {
        return Ok(Verdict::Corrupt(problems.join("; ")));
    }
    let (revision, digest) = match restore::prove::prove(&store, &options.scratch, &options.tools).await {
        Err(error) if error.is_damage() => return Ok(Verdict::Corrupt(causes(&error))),
        other => other?,
    };
    if recorded.is_some_and(|recorded| recorded > revision) {
        return Ok(Verdict::Corrupt(format!(
            "it reaches revision {revision}, and {} was recorded when it was taken",
            recorded.unwrap_or_default()
        )));
    }
    let revision = repot_etcd_core::snapshot::Revision(revision.0);
    // What ended by itself while it was read is no part of the backup.
    Ok(Verdict::Sound(Digest { revision, ..digest }.into()))
}
