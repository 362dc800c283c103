//! Running `etcdutl`.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;

use super::{Error, Member, Result};

/// How much of what a program said is worth repeating.
const SAID: usize = 2000;

/// The program.
#[derive(Clone)]
pub(super) struct Etcdutl(PathBuf);

/// What a data directory is made for.
pub(super) struct MemberIdentity<'a> {
    pub(super) member: &'a Member,
    pub(super) bump: u64,
}

impl Etcdutl {
    /// Looks whether it can be run, before anything else is done.
    pub(super) async fn find(path: &Path) -> Result<Self> {
        run(path, &["version"]).await?;
        Ok(Self(path.to_owned()))
    }

    /// Makes a data directory of a snapshot file; it checks the hash once more.
    pub(super) async fn restore(
        &self,
        snapshot: &Path,
        data_dir: &Path,
        identity: &MemberIdentity<'_>,
    ) -> Result<()> {
        let Member { name, initial_cluster, initial_cluster_token, peer_urls } = identity.member;
        let mut args: Vec<std::ffi::OsString> = vec!["snapshot".into(), "restore".into(), snapshot.into()];
        let mut flag = |name: &str, value: &OsStr| {
            args.push(format!("--{name}").into());
            args.push(value.to_owned());
        };
        flag("data-dir", data_dir.as_os_str());
        flag("name", name.as_ref());
        flag("initial-cluster", initial_cluster.as_ref());
        flag("initial-cluster-token", initial_cluster_token.as_ref());
        flag("initial-advertise-peer-urls", peer_urls.as_ref());
        if identity.bump > 0 {
            flag("bump-revision", identity.bump.to_string().as_ref());
            args.push("--mark-compacted".into());
        }
        run(&self.0, &args).await
    }
}

async fn run(program: &Path, args: &[impl AsRef<OsStr>]) -> Result<()> {
    let command = || {
        let words = args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned());
        [program.display().to_string()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    };
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| Error::Tool { command: command(), output: error.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr.as_slice(), output.stdout.as_slice()].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let end: String = said.chars().skip(said.chars().count().saturating_sub(SAID)).collect();
    Err(Error::Tool { command: command(), output: format!("{}\n{}", output.status, end.trim()) })
}
