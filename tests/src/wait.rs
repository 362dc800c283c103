//! Waiting for a condition: polled, with a deadline, and with the last reason why it does not hold yet.

use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use tokio::time::{Instant, sleep, timeout_at};

/// How often a condition is looked at.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A reason after which waiting longer is pointless, such as a process that has exited.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Hopeless(pub String);

/// Calls `probe` until it succeeds, and gives its value.
///
/// Errors: after `deadline`, or at once when the probe fails with [`Hopeless`]; both carry the last reason and name `what`.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    let mut reason: Option<Error> = None;
    loop {
        match timeout_at(end, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) if error.is::<Hopeless>() => {
                return Err(error.context(format!("waited for {what}")));
            }
            Ok(Err(error)) => reason = Some(error),
            Err(_) => {
                let last = reason.unwrap_or_else(|| anyhow!("the first look at it did not return"));
                return Err(last).with_context(|| format!("waited {deadline:?} for {what}"));
            }
        }
        sleep(POLL_INTERVAL.min(end.saturating_duration_since(Instant::now()))).await;
    }
}
