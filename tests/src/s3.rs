//! An S3 store that checks signatures, takes multipart uploads and conditional puts, and keeps objects as plain files: versitygw
//! over a directory. Clients reach it by a relay, so a test can put it out of reach, slow it down and harm what it keeps.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::Client;

use crate::pki::{self, Ca, Usage};
use crate::process::{Process, Spec};
use crate::relay::Relay;
use crate::test_env::TestEnv;
use crate::{binaries, port};

const START_DEADLINE: Duration = Duration::from_secs(60);
const REGION: &str = "eu-west-1";
/// Who asks whether it serves needs no credentials.
const HEALTH: &str = "/health";

/// The one bucket that is there from the start.
pub const BUCKET: &str = "backups";

/// A store. It ends when it is dropped.
pub struct S3Server {
    process: Process,
    /// The way that clients take.
    pub relay: Relay,
    root: PathBuf,
    port: u16,
    tls: Option<Tls>,
    access_key: String,
    secret_key: String,
}

struct Tls {
    ca_pem: String,
    ca_file: PathBuf,
}

impl S3Server {
    /// Starts one and waits until it serves.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        Self::start_with(env, false).await
    }

    /// The same, over TLS with an authority of its own.
    pub async fn start_with_tls(env: &TestEnv) -> Result<Self> {
        Self::start_with(env, true).await
    }

    async fn start_with(env: &TestEnv, tls: bool) -> Result<Self> {
        let dir = env.make_dir("s3")?;
        let (root, beside) = (dir.join("buckets"), dir.join("attributes"));
        fs::create_dir_all(root.join(BUCKET))?;
        fs::create_dir_all(&beside)?;
        let (access_key, secret_key) = (random_word()?, random_word()?);
        let port = port::reserve()?;
        let mut spec = Spec::new("s3", binaries::find("versitygw")?)
            .env("ROOT_ACCESS_KEY", &access_key)
            .env("ROOT_SECRET_KEY", &secret_key)
            .args(["--port", &format!("127.0.0.1:{port}"), "--region", REGION, "--health", HEALTH]);
        let mut authority = None;
        if tls {
            let ca = Ca::new("s3-ca")?;
            let leaf = ca.leaf("s3", &[], &["localhost", "127.0.0.1"], Usage::Server)?;
            let (cert, key) = leaf.write(&dir, "s3")?;
            spec = spec.arg("--cert").arg(cert).arg("--key").arg(key);
            authority = Some(Tls { ca_pem: ca.pem(), ca_file: ca.write(&dir, "s3-ca")? });
        }
        // Attributes lie beside the objects, since not every file system has extended ones.
        let spec = spec.arg("posix").arg("--sidecar").arg(&beside).arg(&root);
        let process = Process::start(env, spec)?;
        let relay = Relay::start(&[([127, 0, 0, 1], port).into()]).await?;
        let mut server = Self { process, relay, root, port, tls: authority, access_key, secret_key };
        server.wait_until_ready().await?;
        Ok(server)
    }

    /// Waits until it answers.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let url = format!("{}://127.0.0.1:{}{HEALTH}", self.scheme(), self.port);
        let mut client = Client::builder().timeout(Duration::from_secs(2));
        if let Some(tls) = &self.tls {
            client = client.tls_certs_only([reqwest::Certificate::from_pem(tls.ca_pem.as_bytes())?]);
        }
        let client = client.build()?;
        let probe = async || {
            let status = client.get(&url).send().await?.status();
            ensure!(status.is_success(), "{url} answers {status}");
            Ok(())
        };
        self.process.ready(START_DEADLINE, probe).await
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// URL of a store with that prefix in [`BUCKET`].
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// URL of its API, by way of the relay.
    pub fn endpoint(&self) -> String {
        self.endpoint_at(self.relay.port())
    }

    /// The same by way of another port of 127.0.0.1, such as that of a second relay.
    pub fn endpoint_at(&self, port: u16) -> String {
        format!("{}://127.0.0.1:{port}", self.scheme())
    }

    /// Its port behind the relay.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What must not be printed by anybody.
    pub fn secret(&self) -> &str {
        &self.secret_key
    }

    /// Its process, to pause, kill or restart it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Environment variables for [`S3Server::url`], as the tools of AWS know them.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut variables = vec![
            ("AWS_ACCESS_KEY_ID", self.access_key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_key.clone()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ENDPOINT", self.endpoint()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ];
        if let Some(tls) = &self.tls {
            variables.push(("AWS_CA_BUNDLE", tls.ca_file.display().to_string()));
        }
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The content of a Secret as etcd-backup-restore and Gardener write it.
    pub fn secret_data(&self) -> BTreeMap<&'static str, String> {
        let mut data = BTreeMap::from([
            ("accessKeyID", self.access_key.clone()),
            ("secretAccessKey", self.secret_key.clone()),
            ("region", REGION.to_owned()),
            ("endpoint", self.endpoint()),
            ("bucketName", BUCKET.to_owned()),
            ("s3ForcePathStyle", "true".to_owned()),
        ]);
        if let Some(tls) = &self.tls {
            data.insert("trustedCaCert", tls.ca_pem.clone());
        }
        data
    }

    /// Writes [`S3Server::secret_data`] as a Secret is mounted: a file for each key.
    pub fn mount_secret(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)?;
        for (key, value) in self.secret_data() {
            pki::write_private(dir.join(key), &value)?;
        }
        Ok(())
    }

    /// The directory in which the objects of a prefix are files: as [`S3Server::url`] without the store between. What is changed
    /// there, the store serves as if nothing had happened.
    pub fn files(&self, prefix: &str) -> PathBuf {
        self.root.join(BUCKET).join(prefix)
    }

    /// Changes one bit of an object, behind the back of the store.
    pub fn corrupt(&self, key: &str, at: usize) -> Result<()> {
        let path = self.files(key);
        let mut bytes = fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let at = at % bytes.len().max(1);
        *bytes.get_mut(at).context("an object without bytes")? ^= 1;
        Ok(fs::write(&path, bytes)?)
    }

    /// Cuts an object, behind the back of the store.
    pub fn truncate(&self, key: &str, bytes: u64) -> Result<()> {
        let path = self.files(key);
        let file = fs::File::options().write(true).open(&path);
        Ok(file.with_context(|| format!("failed to open {}", path.display()))?.set_len(bytes)?)
    }

    /// Ids of multipart uploads that were neither completed nor aborted.
    pub fn uploads(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        // <bucket>/.sgwtmp/multipart/<hash of the key>/<id>
        for key in list(&self.root.join(BUCKET).join(".sgwtmp/multipart"))? {
            found.extend(list(&key)?.into_iter().map(|path| path.display().to_string()));
        }
        Ok(found)
    }
}

/// Entries of a directory, none where there is no directory.
fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?),
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error).with_context(|| format!("failed to list {}", dir.display())),
    }
}

fn random_word() -> Result<String> {
    Ok(pki::random_bytes::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
