//! Ending the HTTP/2 stream, or the HTTP/1.1 connection, on which a request came.
//!
//! hyper polls the body of a response only as far as the client takes it. So a body cannot end its stream towards a client that takes
//! nothing. Dropping the task that sends it can: h2 then resets the stream (CANCEL) and drops the data that it has buffered for it.

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static ABORT: CancellationToken;
}

/// Runs the tasks of HTTP/2 streams so that each can be ended by [`abort`].
#[derive(Clone, Copy, Debug)]
pub struct StreamExecutor;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        tokio::spawn(abortable(stream));
    }
}

/// Runs a future until it ends or the token is cancelled that [`abort`] gives inside of it. Of two that are nested, it is that of
/// the inner one.
pub async fn abortable(future: impl Future<Output = ()>) {
    let token = CancellationToken::new();
    tokio::select! {
        biased;
        () = token.cancelled() => {}
        () = ABORT.scope(token.clone(), future) => {}
    }
}

/// What ends the stream or connection of the request that this task answers; `None` outside of one.
#[must_use]
pub fn abort() -> Option<CancellationToken> {
    ABORT.try_with(Clone::clone).ok()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    #[tokio::test]
    async fn ends_the_inner_of_two_and_drops_what_it_holds() {
        let held = Arc::new(());
        let holding = held.clone();
        let connection = abortable(async move {
            let stream = abortable(async move {
                abort().expect("a token").cancel();
                let _holding = holding;
                std::future::pending::<()>().await;
            });
            stream.await;
            assert!(!abort().expect("a token").is_cancelled(), "the connection ended with its stream");
        });
        tokio::time::timeout(Duration::from_secs(60), connection).await.expect("it ends");
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(abort().is_none());
    }
}
