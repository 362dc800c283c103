//! Waiting for a condition: polled, with a deadline, and with the last reason why it does not hold yet.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep_until, timeout_at};

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
    let mut reason = anyhow!("the first look at it did not return");
    while let Ok(outcome) = timeout_at(end, probe()).await {
        match outcome {
            Ok(value) => return Ok(value),
            Err(error) if error.is::<Hopeless>() => return Err(error.context(format!("waited for {what}"))),
            Err(error) => reason = error,
        }
        // A look that is quick never meets its time limit, so the deadline is checked here as well.
        if Instant::now() >= end {
            break;
        }
        sleep_until(end.min(Instant::now() + POLL_INTERVAL)).await;
    }
    Err(reason.context(format!("waited {deadline:?} for {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn gives_up_at_the_deadline_with_the_last_reason() {
        let mut looks = 0;
        let outcome: Result<()> = until("a miracle", SHORT, async || {
            looks += 1;
            Err(anyhow!("no miracle in look {looks}"))
        })
        .await;
        let message = format!("{:#}", outcome.expect_err("it never happens"));
        assert_eq!(message, format!("waited 50ms for a miracle: no miracle in look {looks}"));
        assert!(looks > 1, "looked {looks} times");
    }

    #[tokio::test]
    async fn gives_up_at_the_deadline_though_a_look_hangs() {
        let outcome: Result<()> = until("a miracle", SHORT, async || std::future::pending().await).await;
        assert!(outcome.is_err());
    }

    #[tokio::test]
    async fn gives_up_at_once_when_hopeless() {
        let year = Duration::from_secs(365 * 24 * 3600);
        let outcome: Result<()> =
            until("a miracle", year, async || Err(Hopeless("dead".into()).into())).await;
        assert_eq!(format!("{:#}", outcome.expect_err("it is dead")), "waited for a miracle: dead");
    }
}
