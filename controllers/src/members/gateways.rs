//! What the driver asks of the gateways in front of an etcd.

use std::time::Duration;

use futures::future::BoxFuture;

/// All gateways by which clients reach an etcd, wherever they run.
pub trait Gateways: Send + Sync {
    /// Keeps new writes waiting in all of them, for at most so long, and waits until no write is on its way any more. Gives how
    /// much of the time is left.
    ///
    /// # Guarantees
    /// Writes go on when the time is over, whatever becomes of the caller.
    ///
    /// # Errors
    /// Why writes are still on their way somewhere. [`Gateways::release`] follows.
    fn hold(&self, longest: Duration) -> BoxFuture<'_, Result<Duration, String>>;

    /// Lets writes go on in all of them. One that is not reached opens by itself.
    fn release(&self) -> BoxFuture<'_, ()>;

    /// Sends nothing more to the member of this seat, and waits until what is on its way there has ended. Should the member not be
    /// removed after all, whoever tells gateways of new members brings it back.
    ///
    /// # Errors
    /// Why something is still there.
    fn leave(&self, seat: &str) -> BoxFuture<'_, Result<(), String>>;
}
