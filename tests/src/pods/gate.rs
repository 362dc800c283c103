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
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A connection that was gone before it was accepted is nobody's loss.
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(connect(client, dial()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Its errors show at both ends, so nobody else needs them.
async fn connect(mut client: TcpStream, dial: impl Future<Output = io::Result<TcpStream>>) {
    let Ok(mut target) = dial.await else { return };
    let (_, _) = (client.set_nodelay(true), target.set_nodelay(true));
    let _ = copy_bidirectional(&mut client, &mut target).await;
}
