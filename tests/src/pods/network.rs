//! A way out of the network of Pods to servers of this machine, at addresses that a test chooses.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::gate;
use super::wire::Wire;
use crate::relay::{Link, carry};

/// Opens addresses in the network of the Pods of one cluster.
#[derive(Clone)]
pub struct PodNetwork {
    pub(super) wire: Arc<Wire>,
}

impl PodNetwork {
    /// An address that leads to a server of this machine over TCP, by a wire that is like `link`. It is open when this returns, and serves
    /// for as long as the future that it gives is polled.
    ///
    /// Errors: where the port is taken there.
    pub async fn open(
        &self,
        at: SocketAddr,
        server: SocketAddr,
        link: watch::Receiver<Link>,
    ) -> Result<impl Future<Output = ()> + Send + use<>> {
        let address = format!("{}/32", at.ip());
        self.wire.in_hub("ip", &["address", "replace", &address, "dev", "lo"]).await?;
        let listener = self.wire.listen(at)?;
        let carry = move |client, target| carry(client, target, link.clone());
        Ok(gate::relay_by(listener, move || TcpStream::connect(server), carry))
    }
}

impl fmt::Debug for PodNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodNetwork").finish_non_exhaustive()
    }
}
