//! What containers are made from on this machine: a network, the list of processes, and directories.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::{TcpListener, UdpSocket};

use super::root::{self, Mount};
use super::roster::Roster;
use super::wire::Wire;
use crate::test_env::TestEnv;

/// The parts that Pods of one network share. Clones are the same network.
#[derive(Clone)]
pub(super) struct Host {
    pub wire: Arc<Wire>,
    pub roster: Arc<Roster>,
    /// Logs, and the volumes of claims.
    pub dir: PathBuf,
    /// The empty directory over which containers get their roots.
    pub root: PathBuf,
    pub other_mounts: Vec<Mount>,
}

impl Host {
    /// Makes the network; files of its Pods are in a new directory of that name.
    ///
    /// Errors: unless we are root, or when the kernel has no namespaces.
    pub(super) async fn start(env: &TestEnv, name: &str) -> Result<Self> {
        let dir = env.make_dir(name)?;
        let root = dir.join("root");
        std::fs::create_dir(&root)?;
        let roster = Arc::new(Roster::new());
        let wire = Arc::new(Wire::start(roster.clone(), dir.clone()).await?);
        let other_mounts = root::other_mounts(&std::fs::read_to_string("/proc/self/mountinfo")?, &dir);
        Ok(Self { wire, roster, dir, root, other_mounts })
    }
}

impl Wire {
    /// Listens at an address of the hub over TCP.
    pub(super) fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        let listener = self.within(move || std::net::TcpListener::bind(address))?;
        listener.set_nonblocking(true)?;
        Ok(TcpListener::from_std(listener)?)
    }

    /// Receives datagrams at an address of the hub.
    pub(super) fn receive(&self, address: SocketAddr) -> Result<UdpSocket> {
        let socket = self.within(move || std::net::UdpSocket::bind(address))?;
        socket.set_nonblocking(true)?;
        Ok(UdpSocket::from_std(socket)?)
    }
}
