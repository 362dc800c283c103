//! Calls of one message that a client of the gateway has made, and that are not answered to their end.

use std::sync::Arc;

use tokio::sync::watch;

/// How many there are.
#[derive(Debug)]
pub(super) struct Calls(Arc<watch::Sender<usize>>);

/// One of them, until its answer has passed.
#[derive(Debug)]
pub(super) struct CallInProgress(Arc<watch::Sender<usize>>);

impl Drop for CallInProgress {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Calls {
    /// Counts a call.
    pub(super) fn begin(&self) -> CallInProgress {
        self.0.send_modify(|calls| *calls += 1);
        CallInProgress(self.0.clone())
    }

    /// Waits until there is none.
    pub(super) async fn until_none(&self) {
        let mut calls = self.0.subscribe();
        // It lives as long as the sender, which is borrowed here.
        let _ = calls.wait_for(|calls| *calls == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn calls_are_waited_for_until_each_of_them_has_passed() {
        let calls = Calls::default();
        calls.until_none().await;
        let (one, other) = (calls.begin(), calls.begin());
        drop(one);
        assert!(timeout(Duration::from_millis(20), calls.until_none()).await.is_err());
        drop(other);
        calls.until_none().await;
    }
}
