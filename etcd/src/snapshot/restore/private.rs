//! The private etcd: on the loopback interface, for us alone.
//!
//! Only a certificate made for this run is let in, as user `root`: an etcd whose users are asked for passwords serves it too, so
//! authentication never has to be switched off. It is killed with us, and does not sync its files, since a snapshot of it is what
//! counts.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use etcd_client::Client;
use repot_certs::Authority;
use rustix::process::{Pid, Signal, kill_process};
use time::OffsetDateTime;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use super::{Error, Member, Result, at};
use crate::link;

/// How long it may take to serve. It opens a database of many GiB.
const START: Duration = Duration::from_secs(300);
const STOP: Duration = Duration::from_secs(60);
const PROBE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);
/// On one processor its work is taken up in the order in which it came, for the most part, and nobody waits for another processor
/// to wake up. By far the fastest for one client.
const ONE_PROCESSOR: (&str, &str) = ("GOMAXPROCS", "1");
/// What is not gRPC is served at a port of its own: where both share one, gRPC is served by a slower server. As a variable, which
/// releases before 3.5.8 pass over.
const HTTP_APART: (&str, &str) = ("ETCD_LISTEN_CLIENT_HTTP_URLS", "https://127.0.0.1:0");
/// One revision is one transaction, however large.
const REQUEST_BYTES: &str = "--max-request-bytes=1500000000";
const OPERATIONS: &str = "--max-txn-ops=4000000000";
/// So many entries of the log are read again at the next start, and no more. A standby that takes over without the member's own etcd
/// is started again in an outage, and an entry may have a megabyte.
const SNAPSHOTS: &str = "--snapshot-count=1000";
const LOG_LINES: usize = 12;

/// The only member of the private cluster. Nobody ever dials its peer URL.
pub(super) fn member() -> Member {
    let url = "https://127.0.0.1:2380";
    Member {
        name: "repot-replay".to_owned(),
        initial_cluster: format!("repot-replay={url}"),
        initial_cluster_token: "repot-replay".to_owned(),
        peer_urls: url.to_owned(),
    }
}

/// A running one.
pub(super) struct Etcd {
    pub(super) client: Client,
    child: Child,
    program: PathBuf,
    log: PathBuf,
}

impl Etcd {
    /// Starts it on a data directory and waits until it serves; its log and certificates are in `dir`.
    pub(super) async fn start(program: &Path, dir: &Path, data_dir: &Path) -> Result<Self> {
        Self::start_as(program, dir, data_dir, &member().name).await
    }

    /// The same as a member with another name, whose data directory it is to become.
    pub(super) async fn start_as(program: &Path, dir: &Path, data_dir: &Path, name: &str) -> Result<Self> {
        let files = Files::write(dir)?;
        let log = dir.join("etcd.log");
        let end = Instant::now() + START;
        loop {
            // Somebody may take the port between our look and etcd's.
            let port = free_port().map_err(at(Path::new("127.0.0.1")))?;
            let child = files.launch(program, (data_dir, name), &log, port)?;
            let options = link::Options {
                endpoints: vec![format!("https://127.0.0.1:{port}")],
                ca: Some(files.ca.clone().into_bytes()),
                identity: Some((files.client.0.clone().into_bytes(), files.client.1.clone().into_bytes())),
                server_name: Some("localhost".to_owned()),
                user: None,
            };
            let client = link::connect(&options).await;
            let client = client.map_err(|source| Error::Etcd { task: "be connected to", source })?;
            let mut etcd = Self { client, child, program: program.to_owned(), log: log.clone() };
            match etcd.wait(end).await {
                Ok(()) => return Ok(etcd),
                Err(error) if !etcd.log_end().contains("address already in use") => return Err(error),
                Err(_) => fs::remove_file(&log).map_err(at(&log))?,
            }
        }
    }

    async fn wait(&mut self, end: Instant) -> Result<()> {
        loop {
            if let Some(error) = self.died() {
                return Err(error);
            }
            let mut kv = self.client.kv_client();
            match timeout(PROBE, kv.get("ready", None)).await {
                Ok(Ok(_)) => return Ok(()),
                _ if Instant::now() >= end => {
                    return Err(self.error(format!("does not serve within {START:?}")));
                }
                _ => sleep(POLL).await,
            }
        }
    }

    /// Why it is no longer there; `None` while it is.
    pub(super) fn died(&mut self) -> Option<Error> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(self.error(format!("ended with {status}")))
    }

    /// Ends it.
    pub(super) async fn stop(mut self) -> Result<()> {
        // Its files are of no use any more.
        self.child.start_kill().map_err(at(&self.program))?;
        match timeout(STOP, self.child.wait()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(self.error(format!("does not end within {STOP:?}"))),
        }
    }

    /// Ends it in good order: all that it was told is in its database then.
    pub(super) async fn end(self) -> Result<()> {
        let Self { client, mut child, program, log } = self;
        // It waits for its clients to go.
        drop(client);
        let failed = |what: String| Error::PrivateEtcd { path: program.clone(), what, log: log_end(&log) };
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.ok_or_else(|| failed("has ended by itself".to_owned()))?;
        kill_process(pid, Signal::TERM).map_err(|error| at(&program)(error.into()))?;
        match timeout(STOP, child.wait()).await {
            Ok(Ok(status)) if status.success() || status.signal() == Some(Signal::TERM.as_raw()) => Ok(()),
            Ok(Ok(status)) => Err(failed(format!("ended with {status}"))),
            Ok(Err(error)) => Err(at(&program)(error)),
            Err(_) => Err(failed(format!("does not end within {STOP:?}"))),
        }
    }

    fn error(&self, what: String) -> Error {
        Error::PrivateEtcd { path: self.program.clone(), what, log: self.log_end() }
    }

    fn log_end(&self) -> String {
        log_end(&self.log)
    }
}

fn log_end(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Certificates for one run.
struct Files {
    dir: PathBuf,
    ca: String,
    /// Certificate and key, which stay in memory.
    client: (String, String),
}

impl Files {
    fn write(dir: &Path) -> Result<Self> {
        let now = OffsetDateTime::now_utc();
        let authority = Authority::generate("repot-replay", now)?;
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let server = authority.issue_server("repot-replay", &names, now)?;
        let client = authority.issue_client("root", "repot", now)?;
        repot_certs::write_private(&dir.join("ca.crt"), authority.certificate_pem().as_bytes())?;
        repot_certs::write_private(&dir.join("server.crt"), server.certificate_pem.as_bytes())?;
        repot_certs::write_private(&dir.join("server.key"), server.key_pem.as_bytes())?;
        Ok(Self {
            dir: dir.to_owned(),
            ca: authority.certificate_pem().to_owned(),
            client: (client.certificate_pem, client.key_pem),
        })
    }

    fn launch(
        &self,
        program: &Path,
        (data_dir, name): (&Path, &str),
        log: &Path,
        port: u16,
    ) -> Result<Child> {
        let out = fs::File::options().create(true).append(true).open(log).map_err(at(log))?;
        let mut command = bound_to_us(program);
        command.arg("--data-dir").arg(data_dir);
        let url = format!("https://127.0.0.1:{port}");
        command.args(["--name", name, "--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", "https://127.0.0.1:0"]);
        for side in ["", "peer-"] {
            command.arg(format!("--{side}cert-file")).arg(self.dir.join("server.crt"));
            command.arg(format!("--{side}key-file")).arg(self.dir.join("server.key"));
            command.arg(format!("--{side}trusted-ca-file")).arg(self.dir.join("ca.crt"));
            command.arg(format!("--{side}client-cert-auth"));
        }
        command.args([REQUEST_BYTES, OPERATIONS, SNAPSHOTS]);
        command.args(["--quota-backend-bytes=-1", "--enable-grpc-gateway=false", "--unsafe-no-fsync"]);
        // Its configuration is ours alone.
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_")).for_each(
            |(name, _)| {
                command.env_remove(name);
            },
        );
        command.envs([ONE_PROCESSOR, HTTP_APART]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out).kill_on_drop(true);
        command.spawn().map_err(|error| Error::PrivateEtcd {
            path: program.to_owned(),
            what: format!("cannot be started: {error}"),
            log: String::new(),
        })
    }
}

/// The program, ended by the kernel when we are killed, where the machine has the tool for that.
fn bound_to_us(program: &Path) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|dir| dir.join("setpriv")).find(|file| file.is_file()) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}
