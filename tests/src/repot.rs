//! The program under test, started as an operator starts it.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::aggregate::Aggregation;
use crate::binaries;
use crate::garden::Garden;
use crate::http::Api;
use crate::kubectl::Kubectl;
use crate::pki;
use crate::port;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;

const START_DEADLINE: Duration = Duration::from_secs(60);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The Service under which a garden knows the API server.
const NAMESPACE: &str = "repot-system";
const SERVICE: &str = "repot-apiserver";
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// A process of `repot` that serves.
pub struct Repot {
    process: Process,
    /// Asked beside the line on standard output, for a role whose port is known beforehand.
    probe: Option<Probe>,
    url: String,
}

/// A way to see that a server is ready from outside.
struct Probe {
    client: reqwest::Client,
    url: String,
}

/// A running `repot dev`: one process with an embedded store, and a kubeconfig to reach it.
pub struct Dev {
    repot: Repot,
    data_dir: PathBuf,
    kubeconfig: PathBuf,
}

impl Repot {
    /// Starts `repot <role> <args>` and waits for its line `ready https://…`.
    ///
    /// Errors: when the program is not built, exits, or is not ready in a minute; the message has the end of its log.
    pub async fn start(
        env: &TestEnv,
        role: &str,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        Self::launch(env, Spec::new(format!("repot-{role}"), program()?).arg(role).args(args), None).await
    }

    /// Starts `repot apiserver` on a port of its own on 127.0.0.1, with further flags; ready is its line, or 200 from `/readyz`.
    pub async fn apiserver(env: &TestEnv, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self> {
        Self::apiserver_with(env, args, &BTreeMap::new()).await
    }

    async fn apiserver_with(
        env: &TestEnv,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self> {
        Self::apiserver_of(env, &program()?, args, environment).await
    }

    async fn apiserver_of(
        env: &TestEnv,
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let port = port::reserve()?;
        let spec = Spec::new("repot-apiserver", program).arg("apiserver");
        let spec = environment.iter().fold(spec, |spec, (name, value)| spec.env(name, value));
        let spec = spec.flag("bind-address", "127.0.0.1").flag("secure-port", port.to_string()).args(args);
        Self::launch(env, spec, Some(Probe::new(port)?)).await
    }

    /// Starts `repot apiserver` as a garden wants it: with a serving certificate for its Service, with delegation to the garden, and
    /// registered for each group and version. Storage, encryption and what else differs is in `args`.
    pub async fn behind(
        env: &TestEnv,
        garden: &Garden,
        served: &[(&str, &str)],
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        let repot = Self::replica(env, garden, args).await?;
        register(garden, served, repot.port()?).await?;
        Ok(repot)
    }

    /// As [`Repot::behind`], but registered for nothing: one of several behind a balancer, which [`register`] makes known.
    pub async fn replica(
        env: &TestEnv,
        garden: &Garden,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        Self::replica_with(env, garden, args, &BTreeMap::new()).await
    }

    /// The same, with environment variables.
    pub async fn replica_with(
        env: &TestEnv,
        garden: &Garden,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let args = Self::replica_args(env, garden, args).await?;
        Self::apiserver_with(env, args, environment).await
    }

    /// As [`Repot::replica`], of another program, such as that of an earlier commit.
    pub async fn replica_of(
        env: &TestEnv,
        garden: &Garden,
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        let args = Self::replica_args(env, garden, args).await?;
        Self::apiserver_of(env, program, args, &BTreeMap::new()).await
    }

    /// With the flags that every replica in a garden has.
    async fn replica_args(
        env: &TestEnv,
        garden: &Garden,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Vec<OsString>> {
        let dir = env.make_dir("repot-config")?;
        let (cert, key) = garden.pki().serve(NAMESPACE, SERVICE)?.write(&dir, "serving")?;
        let delegate = garden.delegate("repot-apiserver").await?;
        let own = [
            ("tls-cert-file", cert),
            ("tls-private-key-file", key),
            ("authentication-kubeconfig", delegate.clone()),
            ("authorization-kubeconfig", delegate),
        ];
        let own = own.iter().map(|(name, path)| format!("--{name}={}", path.display()).into());
        Ok(own.chain(args.into_iter().map(|arg| arg.as_ref().to_owned())).collect())
    }

    /// Starts any program that keeps the contract, such as an older release.
    pub async fn start_program(env: &TestEnv, spec: Spec) -> Result<Self> {
        Self::launch(env, spec, None).await
    }

    async fn launch(env: &TestEnv, spec: Spec, probe: Option<Probe>) -> Result<Self> {
        let mut repot = Self { process: Process::start(env, spec)?, probe, url: String::new() };
        repot.wait_until_ready().await?;
        Ok(repot)
    }

    /// Where it serves, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port in [`Repot::url`].
    pub fn port(&self) -> Result<u16> {
        let port = self.url.rsplit(':').next().and_then(|port| port.parse().ok());
        port.with_context(|| format!("no port in {}", self.url))
    }

    /// Its process: id, log, pause and resume.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to stop (SIGTERM).
    ///
    /// Errors: when it still runs after half a minute, or ends with anything but code 0.
    pub async fn stop(&mut self) -> Result<()> {
        let status = self.process.stop(STOP_DEADLINE).await?;
        match status.success() {
            true => Ok(()),
            false => bail!("it stopped with {status}"),
        }
    }

    /// Starts it again with the same arguments, so on the same data, and waits until it is ready; kills it first when it runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.restart()?;
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let output = self.process.output_path();
        let Self { process, probe, .. } = self;
        let ready = process.ready(START_DEADLINE, async || match (find_ready_line(&output), &probe) {
            (Err(_), Some(probe)) => probe.check().await,
            (found, _) => found,
        });
        self.url = ready.await?;
        Ok(())
    }
}

impl Probe {
    fn new(port: u16) -> Result<Self> {
        // Which certificate it serves is for the tests to judge; this only asks whether it is ready.
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
        Ok(Self { client: client.timeout(PROBE_TIMEOUT).build()?, url: format!("https://127.0.0.1:{port}") })
    }

    async fn check(&self) -> Result<String> {
        let response = self.client.get(format!("{}/readyz", self.url)).send().await?;
        match response.status().as_u16() {
            200 => Ok(self.url.clone()),
            status => bail!("/readyz answered {status}: {}", response.text().await?),
        }
    }
}

impl Dev {
    /// Starts `repot dev` on a free port with an empty data directory, and further flags.
    pub async fn start(env: &TestEnv, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self> {
        let data_dir = env.make_dir("repot-data")?;
        // The port is fixed, so that the kubeconfig holds after a restart.
        let port = port::reserve()?.to_string();
        let own = [OsStr::new("--data-dir"), data_dir.as_os_str(), OsStr::new("--port"), OsStr::new(&port)];
        let given = args.into_iter().map(|arg| arg.as_ref().to_owned());
        let args = own.into_iter().map(OsStr::to_owned).chain(given);
        let repot = Repot::start(env, "dev", args).await?;
        let kubeconfig = data_dir.join("kubeconfig");
        Ok(Self { repot, data_dir, kubeconfig })
    }

    /// The program itself: kill, stop, restart, URL.
    pub fn repot(&mut self) -> &mut Repot {
        &mut self.repot
    }

    /// Where it keeps everything.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The kubeconfig file that it wrote.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API as the user of that kubeconfig.
    pub fn api(&self) -> Result<Api> {
        Api::from_kubeconfig(&self.kubeconfig)
    }

    /// kubectl with that kubeconfig.
    pub fn kubectl(&self, env: &TestEnv) -> Result<Kubectl> {
        Kubectl::new(env, &self.kubeconfig)
    }
}

/// Makes each group and version known to a garden, as served at a port of localhost by [`Repot::replica`]s.
pub async fn register(garden: &Garden, served: &[(&str, &str)], port: u16) -> Result<()> {
    let ca_pem = &garden.pki().serving.pem();
    for &(group, version) in served {
        let place = Aggregation { group, version, namespace: NAMESPACE, service: SERVICE, port, ca_pem };
        place.register(garden).await?;
    }
    Ok(())
}

/// Writes a kube-apiserver EncryptionConfiguration with one fresh AES-GCM key for all resources, and gives its path.
pub fn write_encryption_config(dir: &Path) -> Result<PathBuf> {
    let secret = STANDARD.encode(pki::random_bytes::<32>()?);
    let key = json!({ "name": "testbed", "secret": secret });
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{ "resources": ["*.*"], "providers": [{ "aesgcm": { "keys": [key] } }] }],
    });
    pki::write_private(dir.join("encryption.yaml"), &config.to_string())
}

fn find_ready_line(output: &Path) -> Result<String> {
    let text = fs::read_to_string(output)?;
    // A line without its end may be half written.
    let complete = text.rsplit_once('\n').map(|(lines, _)| lines).unwrap_or_default();
    let url = complete.lines().find_map(|line| line.strip_prefix("ready "));
    Ok(url.context("it has not printed `ready https://…` yet")?.trim().to_owned())
}

/// The program: `$REPOT_BIN` when set, else what cargo built beside the running test.
///
/// Errors: when it is not there. One that is older than its sources is used, with a warning.
pub fn program() -> Result<PathBuf> {
    if let Some(path) = env::var_os("REPOT_BIN") {
        return Ok(path.into());
    }
    let path = binaries::profile_dir()?.join("repot");
    if !path.is_file() {
        bail!("{} is missing: build it by `cargo build --workspace` (tests do not build it)", path.display());
    }
    if let Some(source) = find_newer_source(&path) {
        eprintln!("warning: {} is older than {source}; `cargo build --workspace` renews it", path.display());
    }
    Ok(path)
}

/// The program of an earlier version, the one from which `install::upgrade` upgrades.
///
/// Errors: when it was not built.
pub fn previous_program() -> Result<PathBuf> {
    let path = binaries::testbed_dir().join("previous/repot");
    if !path.is_file() {
        bail!("{} is missing: build it by `tests/previous`", path.display());
    }
    Ok(path)
}

/// A source that was changed after the program was built, by the list that cargo keeps beside it.
fn find_newer_source(program: &Path) -> Option<String> {
    let built = modified(program)?;
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    let sources = list.split_once(": ")?.1.split_whitespace();
    sources.filter(|source| modified(Path::new(source)) > Some(built)).map(str::to_owned).next()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}
