//! Are all snapshots of a store good, and do they follow on each other?

use std::{fs::File, ops::RangeInclusive, path::Path};

use futures::{StreamExt, stream};
use repot_etcd_core::snapshot::{
    Kind, Revision, SnapshotName,
    chain::{self, Gap, Overlap},
};
use serde::Serialize;

use super::{
    codec::{Database, HASH_BYTES, Revisions},
    inspect::{self, Content, Look, inspect},
    store::{self, Store, Stored},
};

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The newest state may not come back.
    Problem,
    /// Worth knowing.
    Notice,
}

/// What sort of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum What {
    /// Bytes are not what they have to be.
    Damaged,
    /// It could not be read, so nothing is known of it.
    Unreadable,
    /// Revisions are in no snapshot.
    Gap,
    /// Revisions are in two deltas.
    Overlap,
    /// A full snapshot holds another revision than its name says.
    RevisionDiffers,
    /// There is nothing to begin with.
    NoFull,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What sort of thing.
    pub what: What,
    /// Name of the snapshot that it is about.
    pub snapshot: String,
    /// What was found, in words for people.
    pub message: String,
}

/// What was read of a store, and what was found wrong with it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// How many snapshots were read to their end.
    pub snapshots: usize,
    /// Sum of their lengths in the store, in bytes.
    pub bytes: u64,
    /// How many of them had a record of their integrity to be compared with.
    pub recorded: usize,
    /// What is to be said; empty when all is well.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing endangers the newest state.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Notice)
    }
}

type Look1 = inspect::Result<Content>;

/// Reads every snapshot to its end, so many at once, and looks at how they follow on each other. Full snapshots are written to
/// nameless files in `scratch`. `progress` is told the bytes of each that is done.
///
/// # Errors
/// Only when the store cannot be listed; everything else is a finding.
pub async fn verify(
    store: &Store,
    scratch: &Path,
    parallel: usize,
    progress: impl Fn(u64) + Sync,
) -> store::Result<Report> {
    let all = store.list().await?;
    let names: Vec<SnapshotName> = all.iter().map(|one| one.name.clone()).collect();
    let overlaps = chain::overlaps(&names);
    let looks = stream::iter(all.iter().enumerate()).map(|(at, one)| {
        let (ranges, progress) = (ranges_of(&overlaps, at), &progress);
        async move {
            let outcome = look(store, one, scratch, ranges).await;
            progress(one.bytes);
            outcome
        }
    });
    let outcomes: Vec<Look1> = looks.buffered(parallel.max(1)).collect().await;
    let mut report = Report {
        snapshots: all.len(),
        bytes: all.iter().map(|one| one.bytes).sum(),
        recorded: all.iter().filter(|one| one.recorded).count(),
        findings: judge_each(&names, &outcomes),
    };
    report.findings.extend(judge_chain(&names, &outcomes, &overlaps));
    Ok(report)
}

/// The ranges that a delta shares with others, in the order of the overlaps.
fn ranges_of(overlaps: &[Overlap], at: usize) -> Vec<RangeInclusive<Revision>> {
    let of_it = overlaps.iter().filter(|overlap| overlap.first == at || overlap.second == at);
    of_it.map(|overlap| overlap.revisions.clone()).collect()
}

async fn look(
    store: &Store,
    one: &Stored,
    scratch: &Path,
    ranges: Vec<RangeInclusive<Revision>>,
) -> inspect::Result<Content> {
    let keep = match one.name.kind {
        Kind::Full => Some(scratch_file(scratch)?),
        Kind::Delta => None,
    };
    inspect(store, one, Look { keep, ranges }).await.map(|(_, content)| content)
}

fn scratch_file(scratch: &Path) -> inspect::Result<File> {
    tempfile::tempfile_in(scratch)
        .map_err(|source| inspect::Error::Scratch { path: scratch.to_owned(), source })
}

fn chain_of_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn judge_each(names: &[SnapshotName], outcomes: &[Look1]) -> Vec<Finding> {
    let finding = |name: &SnapshotName, severity, what, message| {
        Some(Finding { severity, what, snapshot: name.to_string(), message })
    };
    let judge = |(name, outcome): (&SnapshotName, &Look1)| match outcome {
        Err(error) => {
            let what = if error.is_damage() { What::Damaged } else { What::Unreadable };
            finding(name, Severity::Problem, what, chain_of_causes(error))
        }
        Ok(Content::Full(Database { revisions: Some(Revisions { current, .. }), .. }))
            if *current < name.last =>
        {
            let message = format!("its name says revision {}, and its content ends at {current}", name.last);
            finding(name, Severity::Problem, What::RevisionDiffers, message)
        }
        Ok(Content::Full(Database { revisions: Some(Revisions { current, .. }), .. }))
            if *current > name.last =>
        {
            let message = format!(
                "its name says revision {}, and its content goes on to {current}; a restore follows the content",
                name.last
            );
            finding(name, Severity::Notice, What::RevisionDiffers, message)
        }
        Ok(_) => None,
    };
    names.iter().zip(outcomes).filter_map(judge).collect()
}

/// How far a snapshot is known to reach.
fn reach(name: &SnapshotName, outcome: &Look1) -> Revision {
    match outcome {
        Ok(Content::Full(Database { revisions: Some(revisions), .. })) => revisions.current.max(name.last),
        _ => name.last,
    }
}

fn judge_chain(names: &[SnapshotName], outcomes: &[Look1], overlaps: &[Overlap]) -> Vec<Finding> {
    let reaches: Vec<Revision> = names.iter().zip(outcomes).map(|(name, found)| reach(name, found)).collect();
    let newest_full = (0..names.len()).filter(|at| names[*at].kind == Kind::Full).map(|at| reaches[at]).max();
    let mut findings = Vec::new();
    if newest_full.is_none() && !names.is_empty() {
        findings.push(Finding {
            severity: Severity::Problem,
            what: What::NoFull,
            snapshot: names[0].to_string(),
            message: "there is no full snapshot that the deltas could be applied to".to_owned(),
        });
    }
    findings.extend(chain::gaps(names, &reaches).iter().map(|gap| describe_gap(names, gap)));
    let matters = |overlap: &Overlap| newest_full.is_none_or(|newest| *overlap.revisions.end() > newest);
    for overlap in overlaps {
        let severity = if matters(overlap) { Severity::Problem } else { Severity::Notice };
        findings.push(describe_overlap(names, outcomes, overlaps, overlap, severity));
    }
    findings
}

fn describe_gap(names: &[SnapshotName], gap: &Gap) -> Finding {
    let name = &names[gap.before];
    let missing = match gap.after {
        Some(after) => format!("revisions {} to {}", after.next(), name.start.0 - 1),
        None => format!("revisions before {}", name.start),
    };
    let (severity, rest) = match gap.harmful {
        true => (Severity::Problem, "the newest state cannot be restored"),
        false => (Severity::Notice, "a newer full snapshot makes up for it"),
    };
    let message = format!("{missing} are in no snapshot; {rest}");
    Finding { severity, what: What::Gap, snapshot: name.to_string(), message }
}

fn describe_overlap(
    names: &[SnapshotName],
    outcomes: &[Look1],
    overlaps: &[Overlap],
    overlap: &Overlap,
    severity: Severity,
) -> Finding {
    let hash = |at: usize| -> Option<[u8; HASH_BYTES]> {
        let Ok(Content::Delta(found)) = &outcomes[at] else { return None };
        let mut of_it = overlaps.iter().filter(|other| other.first == at || other.second == at);
        found.hashes.get(of_it.position(|other| other == overlap)?).copied()
    };
    let rest = match (hash(overlap.first), hash(overlap.second)) {
        (Some(a), Some(b)) if a == b => "both hold the same events, so a restore is possible",
        (Some(_), Some(_)) => "they hold different events, so they are of different histories",
        _ => "one of them is damaged",
    };
    let (start, end) = (overlap.revisions.start(), overlap.revisions.end());
    Finding {
        severity,
        what: What::Overlap,
        snapshot: names[overlap.second].to_string(),
        message: format!("revisions {start} to {end} are in {} too: {rest}", names[overlap.first]),
    }
}
