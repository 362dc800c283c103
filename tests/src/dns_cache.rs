//! Caches before a [`DnsServer`]: CoreDNS, as clusters have it, and unbound, as nodes and networks have it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};

use crate::dns::{DnsServer, START_DEADLINE, ZONE};
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::{binaries, port};

/// Which program it is, and how it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CoreDNS, which keeps answers for as long as they may be kept, and says of all that they are authoritative.
    CoreDns,
    /// The same, which hands out old answers while nobody answers at the wire of the zone: each may be kept for no time.
    CoreDnsStale,
    /// unbound, which keeps answers for as long as they may be kept.
    Unbound,
    /// The same, which keeps all for so many seconds at least.
    UnboundAtLeast(u32),
    /// The same, which hands out old answers and asks anew behind them: each may be kept for a second.
    UnboundExpired,
}

/// A cache that asks a [`DnsServer`]. It ends when it is dropped.
pub struct DnsCache {
    process: Process,
    port: u16,
}

impl DnsCache {
    /// Starts one, and waits until it answers.
    pub async fn start(env: &TestEnv, server: &DnsServer, kind: Kind) -> Result<Self> {
        let address = match kind {
            Kind::CoreDnsStale | Kind::UnboundExpired => server.address(),
            Kind::CoreDns | Kind::Unbound | Kind::UnboundAtLeast(_) => server.direct(),
        };
        Self::start_for(env, (ZONE, address), kind).await
    }

    /// The same for a zone and the address of its server.
    pub async fn start_for(env: &TestEnv, zone: (&str, SocketAddr), kind: Kind) -> Result<Self> {
        let (port, dir) = (port::reserve()?, env.make_dir("dns-cache")?);
        let spec = match kind {
            Kind::CoreDns => core_dns(&dir, port, zone.1, "")?,
            Kind::CoreDnsStale => core_dns(&dir, port, zone.1, "\n    serve_stale 1h")?,
            Kind::Unbound => unbound(&dir, port, zone, "")?,
            Kind::UnboundAtLeast(ttl) => unbound(&dir, port, zone, &format!("cache-min-ttl: {ttl}"))?,
            Kind::UnboundExpired => {
                unbound(&dir, port, zone, "serve-expired: yes\n  serve-expired-reply-ttl: 1")?
            }
        };
        let process = Process::start(env, spec).with_context(|| format!("{kind:?}: see `make tools`"))?;
        let mut cache = Self { process, port };
        let address = cache.address();
        let probe = async || {
            tokio::net::TcpStream::connect(address).await?;
            Ok(())
        };
        cache.process.ready(START_DEADLINE, probe).await?;
        Ok(cache)
    }

    /// The address at which the cache answers.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

fn core_dns(dir: &Path, port: u16, server: SocketAddr, more: &str) -> Result<Spec> {
    let file = dir.join("Corefile");
    // Without the last number it would keep answers for five seconds at least.
    let cache = format!("cache {{\n    success 9984 3600 0\n    denial 9984 3600 0{more}\n  }}");
    fs::write(
        &file,
        format!(".:{port} {{\n  bind 127.0.0.1\n  errors\n  {cache}\n  forward . {server}\n}}\n"),
    )?;
    Ok(Spec::new("coredns", binaries::find("coredns")?).arg("-conf").arg(file))
}

fn unbound(dir: &Path, port: u16, (zone, server): (&str, SocketAddr), more: &str) -> Result<Spec> {
    let file = dir.join("unbound.conf");
    let (directory, ip, at) = (dir.display(), server.ip(), server.port());
    // It answers for names below `test.` by itself if it is not told otherwise.
    let text = format!(
        "server:
  interface: 127.0.0.1
  port: {port}
  directory: {directory}
  chroot: \"\"
  username: \"\"
  pidfile: \"\"
  use-syslog: no
  do-daemonize: no
  num-threads: 1
  module-config: iterator
  do-not-query-localhost: no
  local-zone: {zone} nodefault
  local-zone: test nodefault
  {more}
remote-control:
  control-enable: no
stub-zone:
  name: {zone}
  stub-addr: {ip}@{at}
"
    );
    fs::write(&file, text)?;
    Ok(Spec::new("unbound", "unbound").arg("-d").arg("-c").arg(file))
}
