//! Relays between the machine and the network of pods, which have no route to each other.

use std::future::Future;
use std::io;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Accepts for ever and connects each client with what `dial` gives; all connections end with this future.
pub(super) async fn relay<D>(listener: TcpListener, dial: impl Fn() -> D)
where
    D: Future<Output = io::Result<TcpStream>> + Send + 'static,
{
    relay_by(listener, dial, copy).await;
}

/// The same; `carry` moves the bytes of a connection.
pub(super) async fn relay_by<D, C>(
    listener: TcpListener,
    dial: impl Fn() -> D,
    carry: impl Fn(TcpStream, TcpStream) -> C + Clone + Send + 'static,
) where
    D: Future<Output = io::Result<TcpStream>> + Send + 'static,
    C: Future<Output = ()> + Send,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A connection that was gone before it was accepted is nobody's loss.
                let Ok((client, _)) = accepted else { continue };
                let (dialled, carry) = (dial(), carry.clone());
                connections.spawn(async move {
                    if let Ok(target) = dialled.await {
                        carry(client, target).await;
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Its errors show at both ends, so nobody else needs them.
async fn copy(mut client: TcpStream, mut target: TcpStream) {
    let (_, _) = (client.set_nodelay(true), target.set_nodelay(true));
    let _ = copy_bidirectional(&mut client, &mut target).await;
}
