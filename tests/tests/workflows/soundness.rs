//! An etcd is sound when its members and its backups hold all that was acknowledged: backups are restored and read, not believed.

use anyhow::{Context, Result, ensure};
use repot_tests::repot::program;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use repot_tests::{binaries, tool};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::Instant;

use super::control_plane::{ControlPlaneFixture, Data};
use super::world::DEADLINE;
use crate::etcd::world::{Keys, Revived, dump};

/// What a backup holds, read from an etcd that was started on it.
struct Restored {
    /// The revision that the restore told.
    revision: i64,
    keys: Keys,
}

impl Restored {
    fn data(&self) -> Data {
        let data = self.keys.iter().filter(|(key, _)| key.starts_with(b"/data/"));
        data.map(|(key, (value, created, changed, ..))| (key.clone(), value.clone(), *created, *changed))
            .collect()
    }

    /// Checks that it holds this data, and all that the writer had written up to this number.
    fn holds(&self, before: &Data, acknowledged: u64) -> Result<()> {
        let data = self.data();
        ensure!(
            data == *before,
            "the backup holds {} keys and not {}, or they differ",
            data.len(),
            before.len()
        );
        let (value, ..) = self.keys.get(&b"/writer"[..]).context("the backup has no key of the writer")?;
        let stored: u64 = std::str::from_utf8(value)?.parse()?;
        ensure!(stored >= acknowledged, "{acknowledged} was acknowledged, and the backup has {stored}");
        Ok(())
    }
}

impl ControlPlaneFixture {
    /// Checks that the members hold this data and all that was acknowledged, that all of them hold the same, and that backups go
    /// on: by themselves first, so that a backup that is wrong until somebody asks for one is found; then by request.
    pub async fn is_sound(&self, env: &TestEnv, before: &Data) -> Result<()> {
        let known = self.acknowledged()?;
        let start = Instant::now();
        until("the etcd to hold everything", DEADLINE, async || self.holds(before).await).await?;
        until("the members to hold the same", DEADLINE, async || self.members_agree().await).await?;
        let agreed = start.elapsed();
        until("the store to hold everything, without a request", DEADLINE, async || {
            self.restore(env, "").await?.holds(before, known)
        })
        .await?;
        println!("members are sound after {agreed:.1?}, and the store after {:.1?}", start.elapsed());
        self.is_backed_up(env, before).await
    }

    /// Checks that all members hold the same at one revision.
    async fn members_agree(&self) -> Result<()> {
        let answer = self.client().await?.kv_client().get("/writer", None).await?;
        let revision = answer.header().context("no revision")?.revision();
        let mut hashes = Vec::new();
        for client in self.member_clients().await? {
            let hashed = client.maintenance_client().hash_kv(revision).await?;
            hashes.push((hashed.hash(), hashed.compact_version()));
        }
        ensure!(
            hashes.iter().all(|hash| *hash == hashes[0]),
            "members differ at revision {revision}: {hashes:x?}"
        );
        Ok(())
    }

    /// Checks that what is written now is in the snapshot that is asked for then, and that a restore from the store takes that one,
    /// not one of an etcd that was given up.
    pub async fn is_backed_up(&self, env: &TestEnv, before: &Data) -> Result<()> {
        let (known, last) = until("a snapshot of what is written now", DEADLINE, async || {
            let put = self.client().await?.kv_client().put("/backed-up", "yes", None).await?;
            let written = put.header().context("no revision")?.revision();
            let known = self.acknowledged()?;
            let taken = self.ask_agent("/snapshot/full").await?;
            let last = taken["lastRevision"].as_i64().context("a snapshot without revision")?;
            ensure!(last >= written, "{written} was written, and the snapshot is {taken}");
            Ok((known, last))
        })
        .await?;
        let restored = self.restore(env, "").await?;
        let current = self.client().await?.kv_client().get("/backed-up", None).await?;
        let current = current.header().context("no revision")?.revision();
        let revision = restored.revision;
        ensure!(
            (last..=current).contains(&revision),
            "a restore takes {revision}, and the etcd is at {current}"
        );
        restored.holds(before, known)
    }

    /// Checks that the backup that a migration has taken holds this data, and all that the writer had written up to this number.
    pub async fn backup_of(
        &self,
        env: &TestEnv,
        migration: &Value,
        before: &Data,
        acknowledged: u64,
    ) -> Result<()> {
        let name = self.backup_name(migration)?;
        self.restore(env, &format!("/backups/{name}")).await?.holds(before, acknowledged)
    }

    /// Checks that a restore refuses the backup that a migration has taken.
    pub async fn backup_is_refused(&self, env: &TestEnv, migration: &Value) -> Result<()> {
        let name = self.backup_name(migration)?;
        let refused = self.restore(env, &format!("/backups/{name}")).await;
        ensure!(refused.is_err(), "the damaged backup {name} can be restored");
        Ok(())
    }

    /// The name of the backup of a migration: a random one, under which the store has a backup.
    pub fn backup_name(&self, migration: &Value) -> Result<String> {
        let name = migration["status"]["backupName"].as_str().unwrap_or_default();
        ensure!(!name.is_empty(), "status.backupName is empty: {}", migration["status"]);
        ensure!(migration["metadata"]["name"] != name, "the backup has the name of the migration, {name}");
        let dir = self.ns.backups().join(name);
        ensure!(dir.join("backup.json").is_file(), "{} is no backup", dir.display());
        Ok(name.to_owned())
    }

    /// Restores the newest state of a store below that of the etcd, and reads it.
    async fn restore(&self, env: &TestEnv, below: &str) -> Result<Restored> {
        let dir = tempfile::tempdir_in(env.path())?;
        let data_dir = dir.path().join("restored");
        let mut command = Command::new(program()?);
        command.args(["snapshots", "restore", "--output=json", "--name=restored", "--store"]);
        command
            .arg(format!("file://{}/main{below}", self.ns.dir().display()))
            .arg("--data-dir")
            .arg(&data_dir);
        command.arg("--etcd").arg(binaries::find("etcd")?).arg("--etcdutl").arg(binaries::find("etcdutl")?);
        let told = tool::run(command, b"").await?.json()?;
        let revived = Revived::start_with(env, &data_dir, None, &["--unsafe-no-fsync"]).await?;
        let (_, keys) = dump(&revived.client).await?;
        Ok(Restored { revision: told["revision"].as_i64().context("no revision")?, keys })
    }
}
