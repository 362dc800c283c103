//! A real etcd of one member for a test, ended with it.

use std::{
    fs::File,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use repot_storage::backend::{
    Backend, Etcd,
    etcd::{Options, Tls},
};
use tempfile::TempDir;

/// How long etcd may take to answer on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// In minutes clients write more than the two GiB that etcd has room for by itself, and nothing of that is old enough to go.
pub const QUOTA: &str = "8589934592";
/// How often to try other ports: one may be taken between the look and the use.
const ATTEMPTS: usize = 5;

/// An etcd of one member that runs.
pub struct EtcdProcess {
    child: Child,
    tls: Option<ServerFiles>,
    flags: Vec<String>,
    ports: [u16; 2],
    dir: TempDir,
}

/// What an etcd that speaks TLS and asks for client certificates needs.
#[derive(Clone)]
pub struct ServerFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// How its clients are set up.
    pub client: Tls,
}

impl EtcdProcess {
    /// Starts etcd, with some flags of its own, and waits until it answers.
    pub async fn start(tls: Option<ServerFiles>, flags: &[&str]) -> Self {
        let flags: Vec<_> = flags.iter().map(|&flag| flag.to_owned()).collect();
        for _ in 0..ATTEMPTS {
            let dir = tempfile::tempdir().unwrap();
            let ports = [free_port(), free_port()];
            let child = spawn(dir.path(), ports, tls.as_ref(), &flags);
            let mut process = Self { child, tls: tls.clone(), flags: flags.clone(), ports, dir };
            if process.answers().await {
                return process;
            }
            eprintln!("etcd ended at its start: {}", process.log());
        }
        panic!("etcd does not start");
    }

    /// Ends etcd at once, as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the process without ending it: connections stay, nothing answers.
    pub fn stop(&self) {
        self.signal("-STOP");
        // The signal is taken thread by thread.
        while !self.threads().all(|state| state == 'T') {
            std::thread::yield_now();
        }
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// The state of each thread, as the kernel tells it after the name in brackets.
    fn threads(&self) -> impl Iterator<Item = char> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.filter_map(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).ok()?;
            stat.rsplit_once(") ")?.1.chars().next()
        })
    }

    /// Starts it again with its data.
    pub async fn restart(&mut self) {
        self.child = spawn(self.dir.path(), self.ports, self.tls.as_ref(), &self.flags);
        assert!(self.answers().await, "etcd does not start again: {}", self.log());
    }

    /// Starts it again with its data and other certificates.
    pub async fn restart_with(&mut self, tls: ServerFiles) {
        self.tls = Some(tls);
        self.restart().await;
    }

    /// How many connections of clients it has refused.
    pub fn refusals(&self) -> usize {
        self.count_in_log("rejected connection")
    }

    /// Lines of its log that contain a text.
    pub fn count_in_log(&self, text: &str) -> usize {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| line.contains(text)).count()
    }

    /// Saves a snapshot of it to a file.
    pub async fn save(&self, file: &Path) {
        let mut client = etcd_client::Client::connect([self.endpoint()], None).await.unwrap();
        let mut parts = client.snapshot().await.unwrap();
        let mut file = File::create(file).unwrap();
        while let Some(part) = parts.message().await.unwrap() {
            file.write_all(part.blob()).unwrap();
        }
    }

    /// Starts again with what was saved. Revisions go back to those of then.
    pub async fn restore(&mut self, snapshot: &Path) {
        self.kill();
        std::fs::remove_dir_all(self.dir.path().join("data")).unwrap();
        let peer = format!("http://127.0.0.1:{}", self.ports[1]);
        let mut command = Command::new(program("etcdutl"));
        command
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(self.dir.path().join("data"));
        command.args(["--name", "m", "--initial-cluster", &format!("m={peer}")]);
        let output = command.args(["--initial-advertise-peer-urls", &peer]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.restart().await;
    }

    pub fn endpoint(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    pub fn options(&self) -> Options {
        let tls = self.tls.as_ref().map(|tls| tls.client.clone()).unwrap_or_default();
        // Leases shorter than the patience of any test.
        Options { tls, lease: Duration::from_secs(2), ..Options::new(vec![self.endpoint()], "/repot.dev") }
    }

    /// Waits for the first answer; false where the process ended instead.
    async fn answers(&mut self) -> bool {
        let begin = Instant::now();
        loop {
            let handle = Etcd::connect(self.options()).await.unwrap();
            if handle.revision().await.is_ok() {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(begin.elapsed() < PATIENCE, "etcd does not answer: {}", self.log());
        }
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines().rev().take(5).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, ports: [u16; 2], tls: Option<&ServerFiles>, flags: &[String]) -> Child {
    let binary = binary();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let (client, peer) =
        (format!("{scheme}://127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}", ports[1]));
    let mut command = Command::new(&binary);
    command.arg("--data-dir").arg(dir.join("data"));
    command.args(["--name", "m", "--initial-cluster", &format!("m={peer}")]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    // Alone, it need not wait long for an election.
    command.args(["--heartbeat-interval", "20", "--election-timeout", "200"]);
    if let Some(tls) = tls {
        command.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
        command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.ca);
    }
    command.args(["--quota-backend-bytes", QUOTA]).args(flags);
    let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().unwrap_or_else(|error| panic!("cannot run {}: {error}", binary.display()))
}

/// Path of the program etcd.
pub fn binary() -> PathBuf {
    program("etcd")
}

/// From the test environment, else from where the testbed builds it.
fn program(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("target/testbed/bin").join(name);
    let given = std::env::var_os("KUBEBUILDER_ASSETS").map(|dir| Path::new(&dir).join(name));
    let binary = given.filter(|given| given.is_file()).unwrap_or(built);
    assert!(
        binary.is_file(),
        "no {name} at {}: set KUBEBUILDER_ASSETS or build the testbed",
        binary.display()
    );
    binary
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
