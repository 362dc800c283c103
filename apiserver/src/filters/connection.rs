//! How long a connection is worth keeping. Ending one means GOAWAY, or `Connection: close`: what is being answered on it is
//! answered to the end.

use std::{fmt::Debug, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::unauthenticated;

/// What is known of a connection.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    activity: Arc<Mutex<Activity>>,
    leave: CancellationToken,
    authenticated: CancellationToken,
    end: CancellationToken,
    counted: Arc<Mutex<Counted>>,
}

/// What counts a connection for its owner until it is dropped.
type Permit = Box<dyn Debug + Send + Sync>;

/// As what the connection counts.
#[derive(Debug)]
enum Counted {
    /// As one without credentials, where it was accepted from a listener.
    Unauthenticated(
        #[expect(dead_code, reason = "held until the client is known")] Option<unauthenticated::Counted>,
    ),
    For(#[expect(dead_code, reason = "held until the connection is closed")] Permit),
    Closed,
}

impl Default for Counted {
    fn default() -> Self {
        Self::Unauthenticated(None)
    }
}

/// Gives back what the connection holds when it is dropped: requests may outlive their connection.
#[derive(Debug)]
pub struct Closes(Arc<Mutex<Counted>>);

impl Drop for Closes {
    fn drop(&mut self) {
        let counted = std::mem::replace(&mut *self.0.lock(), Counted::Closed);
        drop(counted);
    }
}

#[derive(Debug, Default)]
struct Activity {
    requests: usize,
    last: Option<Instant>,
}

/// A request that is being answered on a connection.
pub struct Busy(Arc<Mutex<Activity>>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.requests -= 1;
        activity.last = Some(Instant::now());
    }
}

impl Connection {
    /// Counts a request for as long as the guard lives.
    #[must_use]
    pub fn busy(&self) -> Busy {
        self.activity.lock().requests += 1;
        Busy(self.activity.clone())
    }

    /// Its client has shown who it is. The first time, `take` counts the connection for its owner.
    ///
    /// # Errors
    /// That of `take`; the connection is one without credentials then.
    pub(crate) fn authenticate<P: Debug + Send + Sync + 'static, E>(
        &self,
        take: impl FnOnce() -> Result<P, E>,
    ) -> Result<(), E> {
        let mut counted = self.counted.lock();
        if matches!(*counted, Counted::Unauthenticated(_)) {
            *counted = Counted::For(Box::new(take()?));
            self.authenticated.cancel();
        }
        Ok(())
    }

    /// Counts as one without credentials until its client has shown who it is.
    pub(crate) fn count(&self, counted: unauthenticated::Counted) {
        *self.counted.lock() = Counted::Unauthenticated(Some(counted));
    }

    /// What is dropped when the connection is closed.
    #[must_use]
    pub(crate) fn closes(&self) -> Closes {
        Closes(self.counted.clone())
    }

    #[cfg(test)]
    pub(crate) fn set_authenticated(&self) {
        self.authenticated.cancel();
    }

    /// Whether its client has shown who it is.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.authenticated.is_cancelled()
    }

    /// Ends when its client has shown who it is.
    pub async fn authenticated(&self) {
        self.authenticated.cancelled().await;
    }

    /// What ends it at once, whatever is being answered on it.
    #[must_use]
    pub fn end(&self) -> CancellationToken {
        self.end.clone()
    }

    /// Asks the client to use another one.
    pub fn send_away(&self) {
        self.leave.cancel();
    }

    /// Whether the client was asked to use another one.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leave.is_cancelled()
    }

    /// Whether no request is being answered on it.
    #[must_use]
    pub fn has_no_request(&self) -> bool {
        self.activity.lock().requests == 0
    }

    /// Whether ending it costs its client nothing, and has not begun.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_leaving() && self.has_no_request()
    }

    /// Ends when the client is sent away, or asked nothing for so long.
    pub fn done(&self, idle: Duration) -> impl Future<Output = ()> + use<> {
        let Self { activity, leave, .. } = self.clone();
        let began = Instant::now();
        let quiet = async move {
            loop {
                let wake = {
                    let activity = activity.lock();
                    let since = activity.last.unwrap_or(began);
                    match activity.requests {
                        0 if since.elapsed() >= idle => return,
                        0 => since + idle,
                        _ => Instant::now() + idle,
                    }
                };
                tokio::time::sleep_until(wake).await;
            }
        };
        async move {
            tokio::select! { () = leave.cancelled() => {}, () = quiet => {} }
        }
    }
}

/// Whether this request is one of those whose connection is ended, so that clients spread over all servers again.
#[must_use]
pub fn is_chosen(chance: f64) -> bool {
    let random = (uuid::Uuid::new_v4().as_u128() >> 96) as u32;
    chance > 0.0 && f64::from(random) < chance * f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_ends_when_nothing_was_asked_for_a_while() {
        let idle = Duration::from_millis(40);
        let connection = Connection::default();
        let request = connection.busy();
        let done = tokio::spawn(connection.done(idle));
        tokio::time::sleep(3 * idle).await;
        assert!(!done.is_finished(), "a connection with a request on it was ended");
        let quiet = Instant::now();
        drop(request);
        done.await.expect("it ends");
        assert!(quiet.elapsed() >= idle, "ended after {:?}", quiet.elapsed());
    }

    #[tokio::test]
    async fn a_client_that_is_sent_away_goes_at_once() {
        let connection = Connection::default();
        let _request = connection.busy();
        let done = connection.done(Duration::from_secs(3600));
        connection.send_away();
        tokio::time::timeout(Duration::from_secs(60), done).await.expect("it ends");
    }

    #[test]
    fn about_as_many_are_chosen_as_were_asked_for() {
        assert!((0..1000).all(|_| !is_chosen(0.0)));
        let chosen = (0..20_000).filter(|_| is_chosen(0.02)).count();
        assert!((200..800).contains(&chosen), "{chosen} of 20000 at 2 %");
    }
}
