//! etcd-backup-restore itself, at its latest release, as a peer: it restores what we stored, and we restore what it stored.

use std::path::Path;

use anyhow::{Result, ensure};
use repot_etcd::snapshot::verify::verify;
use repot_etcd_core::snapshot::{Compression, Kind};
use repot_tests::binaries;
use repot_tests::process::{Process, Spec};
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use repot_tests::tool;
use repot_tests::wait::until;
use tokio::process::Command;

use super::world::{DEADLINE, Revived, World, dump, restore};

#[test]
#[ignore = "the program takes minutes to build: make soak"]
fn etcd_backup_restore_restores_our_snapshots() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("early", 40).await?;
        let mut last = world.full(false).await?.name.last;
        for (name, compression) in
            [("a", Compression::Gzip), ("b", Compression::Zlib), ("c", Compression::None)]
        {
            world.write(name, 40).await?;
            last = world.delta(last, compression).await?.name.last;
        }
        let (_, before) = dump(&world.client).await?;
        let data = env.path().join("theirs");
        restore_by_peer(env, &data).await?;
        let revived = Revived::start(env, &data).await?;
        let (revision, after) = dump(&revived.client).await?;
        assert_eq!((revision, after), (last, before));
        Ok(())
    });
}

/// The store of a [`World`] is `store` in the directory of the test, which the program takes for its home.
async fn restore_by_peer(env: &TestEnv, data: &Path) -> Result<()> {
    let scratch = env.make_dir("temporary")?;
    let mut command = Command::new(binaries::find("etcdbrctl")?);
    command.env("HOME", env.path()).arg("restore");
    command.args(["--storage-provider=Local", "--store-container=store", "--name=restored"]);
    command.args([
        "--initial-cluster=restored=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
    ]);
    command.arg("--data-dir").arg(data).arg("--restoration-temp-snapshots-dir").arg(&scratch);
    command.arg("--snapstore-temp-directory").arg(&scratch);
    let output = tool::run(command, b"").await?;
    ensure!(output.succeeded() && data.join("member").is_dir(), "{output:?}");
    Ok(())
}

#[test]
#[ignore = "the program takes minutes to build: make soak"]
fn snapshots_of_etcd_backup_restore_are_restored() {
    run(async |env| {
        for compression in ["gzip", "zlib", "lzw"] {
            let world = World::start(env).await?;
            world.write("early", 20).await?;
            let scratch = env.make_dir("temporary")?;
            let container = world.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let spec = Spec::new("etcdbrctl", binaries::find("etcdbrctl")?)
                .arg("snapshot")
                .env("HOME", env.path())
                .flag("endpoints", world.etcd.endpoints().join(","))
                .flag("storage-provider", "Local")
                .flag("store-container", &container)
                .flag("snapstore-temp-directory", &scratch)
                .flag("compression-policy", compression)
                .flag("delta-snapshot-period", "1s");
            let mut peer = Process::start(env, spec)?;
            let reached = async |kind: Kind| {
                let list = world.store.list().await?;
                let last = list.iter().filter(|one| one.name.kind == kind).map(|one| one.name.last).max();
                let (now, _) = dump(&world.client).await?;
                ensure!(last == Some(now), "{last:?} of {now} is stored");
                Ok(())
            };
            peer.ready(DEADLINE, async || reached(Kind::Full).await).await?;
            for name in ["a", "b"] {
                world.write(name, 30).await?;
                until("a delta of the peer", DEADLINE, async || reached(Kind::Delta).await).await?;
            }
            peer.kill();
            let report = verify(&world.store, env.path(), 2, |_| {}).await?;
            assert!(report.is_good() && report.snapshots >= 3, "{compression}: {report:?}");
            let (last, before) = dump(&world.client).await?;
            let data = env.path().join(format!("ours-{compression}"));
            let restored = restore(&world.store, data.clone()).await?;
            assert_eq!(restored.revision, last);
            let revived = Revived::start(env, &data).await?;
            assert_eq!(before, dump(&revived.client).await?.1, "{compression}");
        }
        Ok(())
    });
}
