//! The program of `tests/go/encryption`: key management plugins by Kubernetes' own library, and kube-apiserver's own code for
//! reading configurations and what they sealed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::clientgo::ClientGo;
use crate::test_env::TestEnv;
use crate::{binaries, pki};

/// A KMS v2 plugin on a unix socket. It ends when this is dropped.
pub struct Plugin {
    program: ClientGo,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Plugin {
    /// Starts one, whose first key is called `1`.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let log = env.make_dir("kms")?.join("kms.log");
        // The path of a socket may have a hundred bytes; those of environments have more.
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("kms.sock");
        let mut command = Command::new(binaries::find("encryption")?);
        command.arg("kms").arg("--socket").arg(&socket);
        let mut program = ClientGo::speak_with("encryption", command, &log)?;
        program.answer().await?;
        Ok(Self { program, socket, _dir: dir })
    }

    /// Its element of `providers`, under this name.
    pub fn provider(&self, name: &str) -> Value {
        let endpoint = format!("unix://{}", self.socket.display());
        json!({"kms": {"apiVersion": "v2", "name": name, "endpoint": endpoint, "timeout": "3s"}})
    }

    /// Gives a command, such as `key 2`; the program's head lists them.
    pub async fn ask(&mut self, command: &str) -> Result<Value> {
        self.program.ask(command).await
    }
}

/// kube-apiserver's code, to be asked what it makes of a file.
pub struct Upstream(ClientGo);

impl Upstream {
    /// Starts the program that has kube-apiserver's code in it.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let mut command = Command::new(binaries::find("encryption")?);
        command.arg("config");
        let mut program =
            ClientGo::speak_with("encryption", command, &env.make_dir("upstream")?.join("config.log"))?;
        program.answer().await?;
        Ok(Self(program))
    }

    /// Whether it accepts a configuration; if not, why.
    pub async fn check(&mut self, file: &Path) -> Result<std::result::Result<(), String>> {
        let answer = self.0.ask(&format!("check {}", file.display())).await?;
        Ok(match answer["accepted"].as_bool().context("accepted")? {
            true => Ok(()),
            false => Err(answer["why"].as_str().unwrap_or_default().to_owned()),
        })
    }

    /// What it opens, with a configuration, of what rests for a resource at a place.
    ///
    /// Errors: where it does not open.
    pub async fn open(&mut self, file: &Path, resource: &str, place: &str, sealed: &[u8]) -> Result<Vec<u8>> {
        let command = format!("open {} {resource} {place} {}", file.display(), STANDARD.encode(sealed));
        let answer = self.0.ask(&command).await?;
        Ok(STANDARD.decode(answer["data"].as_str().context("data")?)?)
    }
}

/// An element of `providers` with one fresh key of 32 bytes.
pub fn provider(kind: &str, key: &str) -> Result<Value> {
    let secret = STANDARD.encode(pki::random_bytes::<32>()?);
    Ok(json!({kind: {"keys": [{"name": key, "secret": secret}]}}))
}

/// A configuration of all resources.
pub fn config(providers: &[&Value]) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["*.*"], "providers": providers}],
    })
}

/// Writes a configuration where one may be in use: it changes from one moment to the next.
pub fn write_config(file: &Path, text: &str) -> Result<()> {
    let draft = pki::write_private(file.with_extension("new"), text)?;
    std::fs::rename(draft, file)?;
    Ok(())
}
