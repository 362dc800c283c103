//! A way out of the network of Pods to servers of this machine, at addresses that a test chooses.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::TcpStream;

use super::{Ground, gate};

/// Opens addresses in the network of the Pods of one cluster.
#[derive(Clone)]
pub struct PodNetwork {
    pub(super) ground: Arc<Ground>,
}

impl PodNetwork {
    /// An address that leads to a server of this machine over TCP. It is open when this returns, and serves for as long as the future that
    /// it gives is polled.
    ///
    /// Errors: where the port is taken there.
    pub async fn open(
        &self,
        at: SocketAddr,
        server: SocketAddr,
    ) -> Result<impl Future<Output = ()> + Send + use<>> {
        let address = format!("{}/32", at.ip());
        self.ground.wire.in_hub("ip", &["address", "replace", &address, "dev", "lo"]).await?;
        let listener = self.ground.listen(at)?;
        Ok(gate::relay(listener, move || TcpStream::connect(server)))
    }
}

impl fmt::Debug for PodNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodNetwork").finish_non_exhaustive()
    }
}
