//! The way from kube-apiserver to Pods and Services: an HTTP CONNECT proxy, as kube-apiserver's own egress selection uses one where
//! it runs outside of the cluster's network.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::PodRunner;
use super::wire::Wire;
use crate::test_env::TestEnv;

/// More is no request of kube-apiserver.
const HEAD: usize = 4 << 10;

/// The socket of a proxy, and kube-apiserver's flags for it. [`PodRunner::serve_egress`] opens it.
#[derive(Debug)]
pub struct Egress {
    /// Further arguments of kube-apiserver. Endpoints are dialled instead of addresses of Services, which nobody has here.
    pub flags: [String; 2],
    /// With a short path: that of a socket has 107 bytes at most.
    dir: TempDir,
}

impl Egress {
    /// Makes a directory for the socket and writes the configuration.
    pub fn prepare(env: &TestEnv) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("egress-").tempdir()?;
        let file: PathBuf = env.make_dir("egress")?.join("egress.yaml");
        let text = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: cluster\n  \
             connection:\n    proxyProtocol: HTTPConnect\n    transport:\n      uds: {{udsName: {}}}\n",
            socket(&dir).display()
        );
        std::fs::write(&file, text)?;
        let flags = [
            format!("--egress-selector-config-file={}", file.display()),
            "--enable-aggregator-routing=true".to_owned(),
        ];
        Ok(Self { flags, dir })
    }
}

fn socket(dir: &TempDir) -> PathBuf {
    dir.path().join("socket")
}

impl PodRunner {
    /// Serves the proxy until the runner ends.
    pub fn serve_egress(&self, egress: Egress) -> Result<()> {
        let listener = UnixListener::bind(socket(&egress.dir))?;
        let wire = self.ground.wire.clone();
        self.spawn(async move {
            serve(listener, wire).await;
            drop(egress);
        });
        Ok(())
    }
}

async fn serve(listener: UnixListener, wire: Arc<Wire>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let wire = wire.clone();
                // An error shows at both ends.
                connections.spawn(async move { drop(carry(client, &wire).await) });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry(mut client: UnixStream, wire: &Wire) -> io::Result<()> {
    let address = read_request(&mut client).await?;
    let dialled = match address {
        address if address.ip().is_loopback() => TcpStream::connect(address).await,
        address => wire.connect(address).await,
    };
    let mut target = match dialled {
        Ok(target) => target,
        Err(error) => {
            let answer = format!("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nX-Error: {error}\r\n\r\n");
            return client.write_all(answer.as_bytes()).await;
        }
    };
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    let _ = target.set_nodelay(true);
    copy_bidirectional(&mut client, &mut target).await.map(drop)
}

/// The address of a `CONNECT` request, whose head is read to its end and no further.
async fn read_request(client: &mut UnixStream) -> io::Result<SocketAddr> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD {
            return Err(io::Error::other("the request is too long"));
        }
        head.push(client.read_u8().await?);
    }
    target(&String::from_utf8_lossy(&head)).ok_or_else(|| io::Error::other("no CONNECT with an address"))
}

fn target(head: &str) -> Option<SocketAddr> {
    head.strip_prefix("CONNECT ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_that_of_connect() {
        let expected = Some("10.101.0.2:8443".parse().expect("an address"));
        assert_eq!(target("CONNECT 10.101.0.2:8443 HTTP/1.1\r\nHost: x\r\n\r\n"), expected);
        assert_eq!(target("GET / HTTP/1.1\r\n\r\n"), None);
        assert_eq!(target("CONNECT name:1 HTTP/1.1\r\n\r\n"), None);
    }
}
