//! From a live etcd into a store and back.

use std::fs;

use anyhow::{Result, ensure};
use repot_etcd::snapshot::restore::{Error, Progress, restore};
use repot_etcd_core::snapshot::{Compression, Revision};
use repot_tests::run;

use super::world::{Revived, World, dump, options, restore as restore_into, snapshots, url};

#[test]
fn a_restored_etcd_has_every_key_as_it_was() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("early", 60).await?;
        let full = world.full(false).await?;
        let mut last = full.name.last;
        for (name, compression) in
            [("a", Compression::Gzip), ("b", Compression::Zlib), ("c", Compression::None)]
        {
            world.write(name, 80).await?;
            let delta = world.delta(last, compression).await?;
            ensure!(delta.name.start == last.next(), "{} does not follow on {last}", delta.name);
            last = delta.name.last;
        }
        let (revision, before) = dump(&world.client).await?;
        ensure!(revision == last, "the deltas end at {last}, etcd is at {revision}");
        let data = env.path().join("restored");
        let restored = restore_into(&world.store, data.clone()).await?;
        assert_eq!((restored.revision, restored.plan.deltas.len()), (last, 3));
        let revived = Revived::start(env, &data).await?;
        let (bumped, after) = dump(&revived.client).await?;
        assert_eq!(before, after, "keys differ");
        assert!(bumped >= restored.bumped, "{bumped} is below {}", restored.bumped);
        assert_eq!(restored.bumped, Revision(last.0 + 1_000_000));
        // Whoever knows the past is told that it is gone.
        let old = etcd_client::GetOptions::new().with_revision(last.0);
        let error =
            revived.client.kv_client().get("/a/0000", Some(old)).await.expect_err("a compacted revision");
        assert!(error.to_string().contains("compacted"), "{error}");
        Ok(())
    });
}

#[test]
fn the_name_of_a_full_snapshot_says_the_revision_in_it_while_writers_go_on() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("first", 20).await?;
        let mut kv = world.client.kv_client();
        let writer = tokio::spawn(async move {
            for at in 0_u64.. {
                if kv.put(format!("/busy/{}", at % 7), at.to_string(), None).await.is_err() {
                    return;
                }
            }
        });
        for _ in 0..3 {
            let full = world.full(false).await?;
            let path = env.path().join("look.db");
            unpack(&world.dir.join("v2").join(full.name.to_string()), &path)?;
            let etcdutl = repot_tests::binaries::find("etcdutl")?;
            let mut command = tokio::process::Command::new(etcdutl);
            command.args(["snapshot", "status", "--write-out=json"]).arg(&path);
            let status = repot_tests::tool::run(command, b"").await?.json()?;
            assert_eq!(status["revision"], full.name.last.0, "{status}");
        }
        writer.abort();
        // The newest revision may be a deletion of which nothing is left.
        let mut kv = world.client.kv_client();
        kv.delete("/first/0005", None).await?;
        let (revision, _) = dump(&world.client).await?;
        let physical = etcd_client::CompactionOptions::new().with_physical();
        kv.compact(revision.0, Some(physical)).await?;
        let full = world.full(true).await?;
        assert!(full.name.last >= revision && full.name.is_final, "{} and not {revision}", full.name);
        let data = env.path().join("restored");
        let restored = restore_into(&world.store, data.clone()).await?;
        let revived = Revived::start(env, &data).await?;
        assert_eq!(dump(&revived.client).await?.0, restored.bumped);
        Ok(())
    });
}

fn unpack(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    let mut reader = flate2::read::GzDecoder::new(fs::File::open(from)?);
    std::io::copy(&mut reader, &mut fs::File::create(to)?)?;
    Ok(())
}

#[test]
fn an_etcd_with_users_comes_back_with_them() {
    run(async |env| {
        let mut world = World::start(env).await?;
        world.write("early", 10).await?;
        for args in
            [&["user", "add", "root:hush"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
        {
            world.etcd.etcdctl(args).await?.text()?;
        }
        let user = Some(("root".to_owned(), "hush".to_owned()));
        let options = repot_etcd::link::Options {
            endpoints: world.etcd.endpoints(),
            user: user.clone(),
            ..Default::default()
        };
        world.client = repot_etcd::link::connect(&options).await?;
        let full = world.full(false).await?;
        world.write("late", 10).await?;
        world.delta(full.name.last, Compression::Gzip).await?;
        let (_, before) = dump(&world.client).await?;
        let data = env.path().join("restored");
        restore_into(&world.store, data.clone()).await?;
        let revived = Revived::start_as(env, &data, user).await?;
        assert_eq!(before, dump(&revived.client).await?.1);
        let nobody = repot_etcd::link::Options { endpoints: vec![revived.url.clone()], ..Default::default() };
        let stranger = repot_etcd::link::connect(&nobody).await?.kv_client().get("/early/0003", None).await;
        assert!(stranger.is_err(), "a stranger is let in");
        Ok(())
    });
}

#[test]
fn nothing_is_written_over_and_nothing_is_left_of_a_failure() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("early", 10).await?;
        let full = world.full(false).await?;
        world.write("late", 10).await?;
        world.delta(full.name.last, Compression::Gzip).await?;
        let data = env.make_dir("data")?;
        let there = restore(&world.store, &options(data.clone())?, &|_: Progress| {}).await;
        assert!(matches!(there, Err(Error::Exists(_))), "{there:?}");
        // A program that fails, at each of its two calls.
        let target = env.path().join("fresh");
        let mut broken = options(target.clone())?;
        broken.etcd = "/bin/false".into();
        let failed = restore(&world.store, &broken, &|_: Progress| {}).await;
        assert!(matches!(failed, Err(Error::PrivateEtcd { .. })), "{failed:?}");
        assert!(!target.exists() && !env.path().join("fresh.part").exists());
        broken.etcdutl = "/bin/false".into();
        assert!(matches!(restore(&world.store, &broken, &|_: Progress| {}).await, Err(Error::Tool { .. })));
        // A good one succeeds; by the command line.
        let (etcd, etcdutl) = (repot_tests::binaries::find("etcd")?, repot_tests::binaries::find("etcdutl")?);
        let args = [
            "restore",
            "--store",
            &url(&world.dir),
            "--data-dir",
            &target.to_string_lossy(),
            "--etcd",
            &etcd.to_string_lossy(),
            "--etcdutl",
            &etcdutl.to_string_lossy(),
            "--output",
            "json",
        ];
        let said = snapshots(&args).await?.json()?;
        assert_eq!(said["deltas"].as_array().map(Vec::len), Some(1), "{said}");
        assert!(target.join("member/snap/db").is_file());
        assert!(!env.path().join("fresh.part").exists());
        // Usage and failures have their own codes.
        assert_eq!(snapshots(&args).await?.code, 1);
        let empty = env.make_dir("empty")?;
        let args = [
            "restore",
            "--store",
            &url(&empty),
            "--data-dir",
            "/nowhere/x",
            "--etcdutl",
            &etcdutl.to_string_lossy(),
        ];
        assert_eq!(snapshots(&args).await?.code, 1, "no such directory");
        let elsewhere = env.path().join("elsewhere");
        let args = [
            "restore",
            "--store",
            &url(&empty),
            "--data-dir",
            &elsewhere.to_string_lossy(),
            "--etcdutl",
            &etcdutl.to_string_lossy(),
        ];
        assert_eq!(snapshots(&args).await?.code, 3, "nothing to restore");
        assert_eq!(snapshots(&["list", "--store", "nonsense"]).await?.code, 2);
        Ok(())
    });
}

#[test]
fn deltas_of_two_writers_are_restored_when_they_agree() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("early", 5).await?;
        let full = world.full(false).await?;
        world.write("a", 10).await?;
        let first = world.delta(full.name.last, Compression::Gzip).await?;
        world.write("b", 10).await?;
        // The other leader began in the middle of what the first one had stored.
        world.delta(Revision(first.name.start.0 + 3), Compression::Gzip).await?;
        let (last, before) = dump(&world.client).await?;
        let data = env.path().join("restored");
        let restored = restore_into(&world.store, data.clone()).await?;
        assert_eq!((restored.revision, restored.plan.deltas.len()), (last, 2));
        let revived = Revived::start(env, &data).await?;
        assert_eq!(before, dump(&revived.client).await?.1);
        Ok(())
    });
}
