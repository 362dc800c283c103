//! What is told of a drain, and how it ends.

use std::{fmt::Write as _, process::ExitCode};

use repot_console::{
    drain::{Key, Progress, Report},
    text::one_line,
};
use serde_json::{Value, json};

use super::super::{NO, Output, answer};

/// The report, and the exit code that follows from it.
pub(super) fn report(output: Output, all: &Report) -> anyhow::Result<ExitCode> {
    let line = |(key, progress): (&Key, &Progress)| named(json!(progress), key);
    answer(output, &json!({"shoots": all.iter().map(line).collect::<Vec<_>>()}), |_| text(all))?;
    Ok(if all.values().all(Progress::has_left) { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// A line of JSON with its Shoot.
pub(super) fn named(mut line: Value, (namespace, name): &Key) -> Value {
    line["namespace"] = json!(namespace);
    line["shoot"] = json!(name);
    line
}

/// What has changed since it was told last.
pub(super) fn tell(all: &Report, told: Option<&Report>) {
    let done = all.values().filter(|one| one.has_left()).count();
    for (key, progress) in all {
        let is_new = told.and_then(|told| told.get(key)) != Some(progress);
        if is_new && *progress != Progress::Waiting {
            eprintln!("{done}/{} {}/{} {}", all.len(), key.0, key.1, one_line(&words(progress)));
        }
    }
}

/// How far a Shoot is, in words.
pub(super) fn words(progress: &Progress) -> String {
    match progress {
        Progress::Waiting => "not begun".to_owned(),
        Progress::Moving { migration, to, message } => format!("on its way to {to} ({migration}): {message}"),
        Progress::Done { to } => format!("is at {to}"),
        Progress::Failed { migration, message } => {
            format!("its migration has ended without success ({migration}): {message}")
        }
        Progress::Refused { message } => format!("refused: {message}"),
        Progress::Skipped { message } => format!("left alone: {message}"),
        Progress::Gone => "is not at the seed any more".to_owned(),
    }
}

fn text(all: &Report) -> String {
    let width =
        all.keys().map(|(namespace, name)| namespace.len() + name.len() + 1).max().unwrap_or_default();
    let mut text = String::new();
    for ((namespace, name), progress) in all {
        let shoot = format!("{namespace}/{name}");
        let _ = writeln!(text, "{shoot:width$}  {}", one_line(&words(progress)));
    }
    let done = all.values().filter(|one| one.has_left()).count();
    let _ = writeln!(text, "{done} of {} Shoots have left", all.len());
    if all.values().any(|one| matches!(one, Progress::Failed { .. })) {
        let _ =
            writeln!(text, "--retry-failed begins anew with those whose migration has ended without success");
    }
    text
}
