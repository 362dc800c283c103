//! From store to store.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use repot_etcd::snapshot::codec::{Event, EventKind};
use repot_etcd::snapshot::store::Store;
use repot_etcd::snapshot::take::Draft;
use repot_etcd_core::snapshot::{Compression, Revision};
use repot_tests::run;
use repot_tests::wait::until;

use super::world::{DEADLINE, World, command, duplicate, open, snapshots, url};

/// Name and bytes of everything in a store that counts.
pub fn content(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for part in ["v2", "integrity"] {
        for entry in fs::read_dir(dir.join(part)).into_iter().flatten() {
            let entry = entry?;
            let name = format!("{part}/{}", entry.file_name().to_string_lossy());
            found.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(found)
}

/// Deltas that do not compress, without an etcd.
pub async fn fill(store: &Store, count: i64, bytes: usize) -> Result<()> {
    let mut seed = 7_u64;
    for at in 1..=count {
        let mut draft = Draft::new(Compression::Gzip, Revision(at - 1))?;
        let mut value = Vec::with_capacity(bytes);
        while value.len() < bytes {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value.extend(seed.to_le_bytes());
        }
        let event = Event {
            kind: EventKind::Put,
            key: b"/random".to_vec(),
            value,
            create_revision: Revision(1),
            mod_revision: Revision(at),
            version: at,
            lease: 0,
        };
        draft.push(&event, jiff::Timestamp::now())?;
        draft.save(store, jiff::Timestamp::now()).await?;
    }
    Ok(())
}

fn arguments<'a>(source: &'a str, target: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["copy", "--source", source, "--target", target, "--output", "json"], more].concat()
}

#[test]
fn the_history_that_is_written_is_copied_and_no_other() {
    run(async |env| {
        let (from, to) = (env.make_dir("from")?, env.path().join("to"));
        let all = open(&from)?;
        fill(&all, 9, 100).await?;
        fill(&all.history("given-up"), 20, 100).await?;
        let (source, target) = (url(&from), url(&to));
        let listed = async |more: &[&str]| -> Result<(String, usize)> {
            let said = snapshots(&[&["list", "--store", &source, "--output", "json"], more].concat())
                .await?
                .json()?;
            let count = said["snapshots"].as_array().context("no list")?.len();
            Ok((said["history"].as_str().context("no history")?.to_owned(), count))
        };
        // An etcd began to write it, and was given up for the one before.
        all.make_current("given-up").await?;
        ensure!(listed(&[]).await? == ("given-up".to_owned(), 20));
        all.make_current("first").await?;
        ensure!(listed(&[]).await? == ("first".to_owned(), 9));
        ensure!(listed(&["--history", "given-up"]).await? == ("given-up".to_owned(), 20));
        let none = snapshots(&["list", "--store", &source, "--history", "none"]).await?;
        ensure!(none.code == 2 && none.stderr.contains("it has first, given-up"), "{none:?}");
        snapshots(&arguments(&source, &target, &[])).await?.text()?;
        let copied = open(&to)?.list().await?;
        ensure!(copied.len() == 9 && copied[8].name.last == Revision(9), "{} were copied", copied.len());
        ensure!(
            !to.join("histories").exists() && !to.join("current").exists(),
            "more than snapshots was copied"
        );
        Ok(())
    });
}

/// An etcd that comes back to where it was before, and where it was restored in that time.
#[test]
fn whoever_restores_from_the_target_gets_what_was_copied() {
    run(async |env| {
        let (from, to) = (env.make_dir("from")?, env.make_dir("to")?);
        let target = open(&to)?;
        fill(&target.history("restored"), 20, 100).await?;
        target.make_current("restored").await?;
        target.close_history("first").await?;
        fill(&open(&from)?, 9, 100).await?;
        snapshots(&arguments(&url(&from), &url(&to), &[])).await?.text()?;
        let current = target.current_history().await?;
        ensure!(current == "first", "{current} is restored");
        let count = target.current().await?.list().await?.len();
        ensure!(count == 9, "{count} are restored");
        Ok(target.check_history_is_open("first").await?)
    });
}

#[test]
fn a_copy_that_was_killed_is_taken_up() {
    run(async |env| {
        const COUNT: usize = 80;
        let (from, to) = (env.make_dir("from")?, env.path().join("to"));
        fill(&open(&from)?, 80, 300_000).await?;
        let (source, target) = (url(&from), url(&to));
        let mut copy = command(&arguments(&source, &target, &["--parallel", "2"]))?;
        let mut copy = copy.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
        let there = || content(&to).map(|found| found.keys().filter(|name| name.starts_with("v2/")).count());
        until("some snapshots to be copied", DEADLINE, async || {
            let count = there()?;
            ensure!(count >= 3, "{count} are there");
            Ok(())
        })
        .await?;
        copy.kill().await?;
        let killed_at = there()?;
        ensure!(killed_at < COUNT, "it was done before it was killed");
        // Whatever is there is whole, and the newest came first.
        let (begun, all) = (content(&to)?, content(&from)?);
        for (name, bytes) in begun.iter().filter(|(name, _)| name.starts_with("v2/")) {
            assert_eq!(all.get(name), Some(bytes), "{name}");
        }
        let newest = all.keys().filter(|name| name.starts_with("v2/")).max().context("one")?;
        assert!(begun.contains_key(newest), "{newest} is not there");
        let said = snapshots(&arguments(&source, &target, &[])).await?.json()?;
        let outcomes = said["snapshots"].as_array().context("a list")?;
        let count = |what: &str| outcomes.iter().filter(|one| one["outcome"] == what).count();
        assert_eq!(outcomes.len(), COUNT);
        // One that appeared and was not yet recorded is copied again.
        assert!(
            count("present") + 2 >= killed_at && count("present") > 0,
            "{} of {killed_at}",
            count("present")
        );
        assert_eq!(content(&to)?, all);
        assert!(fs::read_dir(to.join("partial"))?.next().is_none(), "something partial is left");
        Ok(())
    });
}

#[test]
fn what_is_not_whole_at_the_target_is_copied_again() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("early", 10).await?;
        let full = world.full(false).await?.name;
        world.write("late", 10).await?;
        let delta = world.delta(full.last, Compression::Zlib).await?.name;
        world.full(true).await?;
        let good = env.path().join("good");
        let (source, target) = (url(&world.dir), url(&good));
        let first = snapshots(&arguments(&source, &target, &[])).await?.json()?;
        assert_eq!(first["failed"], serde_json::json!([]), "{first}");
        let all = content(&world.dir)?;
        assert_eq!(content(&good)?, all);
        assert!(all.keys().any(|name| name.ends_with(".gz.final")), "the final one is not called so");
        type Harm = fn(&Path, &str) -> Result<()>;
        let harms: [(&str, Harm); 4] = [
            ("cut", |dir, name| {
                Ok(fs::File::options().write(true).open(dir.join("v2").join(name))?.set_len(100)?)
            }),
            ("emptied", |dir, name| Ok(fs::write(dir.join("v2").join(name), "")?)),
            ("changed", |dir, name| {
                let path = dir.join("v2").join(name);
                let mut bytes = fs::read(&path)?;
                bytes[20] ^= 4;
                Ok(fs::write(&path, bytes)?)
            }),
            ("unrecorded", |dir, name| {
                Ok(fs::remove_file(dir.join("integrity").join(format!("{name}.json")))?)
            }),
        ];
        for (what, harm) in harms {
            for name in [&full, &delta] {
                let dir = env.path().join(format!("{what}-{}", name.last));
                duplicate(&good, &dir)?;
                harm(&dir, &name.to_string())?;
                let said = snapshots(&arguments(&source, &url(&dir), &[])).await?.json()?;
                let outcomes = said["snapshots"].as_array().context("a list")?;
                let repaired: Vec<_> = outcomes.iter().filter(|one| one["outcome"] == "repaired").collect();
                assert_eq!(repaired.len(), 1, "{what}: {said}");
                assert_eq!(repaired[0]["snapName"], name.to_string(), "{what}");
                assert_eq!(content(&dir)?, all, "{what}");
            }
        }
        Ok(())
    });
}

#[test]
fn damage_at_the_source_goes_nowhere() {
    run(async |env| {
        let from = env.make_dir("from")?;
        fill(&open(&from)?, 5, 2000).await?;
        let bad = fs::read_dir(from.join("v2"))?.next().context("one")??.path();
        let mut bytes = fs::read(&bad)?;
        bytes[500] ^= 1;
        fs::write(&bad, bytes)?;
        let to = env.path().join("to");
        let output = snapshots(&arguments(&url(&from), &url(&to), &[])).await?;
        assert_eq!(output.code, 3, "{output:?}");
        let name = bad.file_name().context("a name")?;
        assert!(!to.join("v2").join(name).exists(), "the damaged one was copied");
        assert_eq!(fs::read_dir(to.join("v2"))?.count(), 4, "the others were not");
        Ok(())
    });
}

#[test]
fn an_empty_source_is_no_success_unless_that_is_said() {
    run(async |env| {
        let (from, to) = (env.make_dir("from")?, env.path().join("to"));
        let (source, target) = (url(&from), url(&to));
        assert_eq!(snapshots(&arguments(&source, &target, &[])).await?.code, 3);
        assert_eq!(snapshots(&arguments(&source, &target, &["--allow-empty"])).await?.code, 0);
        // Objects that are none are not counted, and marked ones are not copied.
        let store = open(&from)?;
        fill(&store, 2, 100).await?;
        fs::write(from.join("v2/notes.txt"), "x")?;
        let all = store.list().await?;
        store.exclude(&all[0].name).await?;
        let said = snapshots(&arguments(&source, &target, &[])).await?.json()?;
        assert_eq!(said["snapshots"].as_array().map(Vec::len), Some(1), "{said}");
        Ok(())
    });
}

#[test]
fn the_final_snapshot_is_waited_for() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("early", 10).await?;
        let full = world.full(false).await?;
        let to = env.path().join("to");
        let (source, target) = (url(&world.dir), url(&to));
        // It does not come: by default nothing is copied.
        let short = ["--wait-for-final", "200ms"];
        let output = snapshots(&arguments(&source, &target, &short)).await?;
        assert_eq!(output.code, 3, "{output:?}");
        assert!(!to.exists(), "something was copied");
        let other = env.path().join("other");
        let anyway = ["--wait-for-final", "200ms", "--on-deadline", "copy"];
        let said = snapshots(&arguments(&source, &url(&other), &anyway)).await?.json()?;
        assert_eq!(said["snapshots"].as_array().map(Vec::len), Some(1), "{said}");

        let wait = arguments(&source, &target, &["--wait-for-final", "10m"]);
        let mut copy = command(&wait)?;
        let mut copy = copy.stdout(Stdio::null()).kill_on_drop(true).spawn()?;
        world.write("late", 10).await?;
        world.delta(full.name.last, Compression::Gzip).await?;
        ensure!(copy.try_wait()?.is_none(), "it did not wait");
        ensure!(!to.exists(), "it copied before the final snapshot was there");
        let last = world.full(true).await?.name;
        let status = tokio::time::timeout(DEADLINE, copy.wait()).await.context("it goes on waiting")??;
        if !status.success() {
            bail!("it ended with {status}");
        }
        assert!(to.join("v2").join(last.to_string()).is_file());
        assert_eq!(content(&to)?, content(&world.dir)?);
        Ok(())
    });
}
