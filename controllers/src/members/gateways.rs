//! What the driver asks of the gateways in front of an etcd.

use std::time::Duration;

use futures::future::BoxFuture;

/// All gateways by which clients reach an etcd, wherever they run.
pub trait Gateways: Send + Sync {
    /// Keeps new writes waiting in all of them, for at most so long, and waits until no write is on its way any more. Gives how
    /// much of the time is left. Told who leads: writes from another site take the longest to end, so gateways there are asked
    /// first, and those beside the leader when nothing is on its way from there.
    ///
    /// # Guarantees
    /// Writes go on when the time is over, whatever becomes of the caller.
    ///
    /// # Errors
    /// Why writes are still on their way somewhere. [`Gateways::release`] follows.
    fn hold<'a>(&'a self, leader: &'a str, longest: Duration) -> BoxFuture<'a, Result<Duration, String>>;

    /// Lets writes go on in all of them. One that is not reached opens by itself.
    fn release(&self) -> BoxFuture<'_, ()>;

    /// Sends nothing more to the member of this slot, and waits until what is on its way there has ended. Should the member not be
    /// removed after all, whoever tells gateways of new members brings it back.
    ///
    /// # Errors
    /// Why something is still there.
    fn leave(&self, slot: &str) -> BoxFuture<'_, Result<(), String>>;
}
