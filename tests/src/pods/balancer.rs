//! Addresses of this machine that lead to Services of the cluster.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::Store;
use tokio::net::TcpListener;

use super::{Ground, dns, gate};

/// Opens addresses of this machine for Services of a cluster whose Pods run.
#[derive(Clone)]
pub struct Balancer {
    pub(super) ground: Arc<Ground>,
    pub(super) slices: Store<EndpointSlice>,
}

impl Balancer {
    /// A load balancer that listens when this returns, and serves for as long as the future that it gives is polled: each
    /// connection goes to the next of the addresses that the name of a Service has at that moment, and is closed when it has none.
    ///
    /// Errors: when it cannot listen at that address.
    pub async fn open(
        &self,
        at: SocketAddr,
        name: &str,
        port: u16,
    ) -> Result<impl Future<Output = ()> + Send + use<>> {
        let turn = AtomicUsize::new(0);
        self.forward(at, name, port, move |count| turn.fetch_add(1, Ordering::Relaxed) % count).await
    }

    /// Forwards connections to one of the addresses of a name; `choose` gets how many there are, at least one.
    pub(super) async fn forward<C>(
        &self,
        at: SocketAddr,
        name: &str,
        port: u16,
        choose: C,
    ) -> Result<impl Future<Output = ()> + Send + use<C>>
    where
        C: Fn(usize) -> usize + Send + 'static,
    {
        let full = format!("{}.cluster.local", name.trim_end_matches(".cluster.local"));
        let listener = TcpListener::bind(at).await.with_context(|| format!("failed to listen on {at}"))?;
        let (ground, slices) = (self.ground.clone(), self.slices.clone());
        let dial = move || {
            let found = dns::addresses(&full, &slices.state()).filter(|found| !found.is_empty());
            let found = found.and_then(|found| found.get(choose(found.len())).copied());
            let ground = ground.clone();
            async move {
                let ip = found.ok_or_else(|| std::io::Error::other("the name has no address"))?;
                ground.wire.connect((ip, port).into()).await
            }
        };
        Ok(gate::relay(listener, dial))
    }
}
