//! Keys that changed after a revision: `repot snapshots changes`, and `late` for a final snapshot that came too late.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use etcd_client::CompactionOptions;
use repot_etcd::snapshot::store::Mode;
use repot_etcd_core::snapshot::{Compression, SnapshotName};
use repot_tests::run;
use serde_json::Value;

use super::copying::content;
use super::world::{World, dump, duplicate, open, put, restore, snapshots, url};

/// Keys and what became of them, by the command.
async fn changes(store: &Path, more: &[&str]) -> Result<(BTreeMap<String, String>, Value)> {
    let store = url(store);
    let args = [&["changes", "--store", &store, "--output", "json"], more].concat();
    let said = snapshots(&args).await?.json()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let keys = said["keys"].as_array().context("no keys")?.iter();
    Ok((keys.map(|one| (text(&one["key"]), text(&one["change"]))).collect(), said))
}

/// What became of keys between two states, by the states alone.
fn difference(before: &super::world::Keys, after: &super::world::Keys) -> BTreeMap<String, String> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let word = |key| match (before.get(key), after.get(key)) {
        (None, Some(_)) => Some("Created"),
        (Some(_), None) => Some("Deleted"),
        (Some(old), Some(new)) if old != new => Some("Updated"),
        _ => None,
    };
    let named = names.into_iter().filter_map(|key| Some((key, word(key)?)));
    named.map(|(key, word)| (String::from_utf8_lossy(key).into_owned(), word.to_owned())).collect()
}

/// Updates, deletes and creates again some keys of a name.
async fn change(world: &World, name: &str) -> Result<()> {
    let mut kv = world.client.kv_client();
    for at in 10..20 {
        kv.put(format!("/{name}/{at:04}"), "new", None).await?;
    }
    for at in 30..35 {
        kv.delete(format!("/{name}/{at:04}"), None).await?;
    }
    kv.put(format!("/{name}/0030"), "again", None).await?;
    kv.put("/brief", "", None).await?;
    kv.delete("/brief", None).await.map(drop).map_err(Into::into)
}

/// The database has thousands of revisions, so its tree has branches.
#[test]
fn keys_that_changed_after_a_revision_are_named_from_full_snapshots_and_from_deltas() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("a", 2_000).await?;
        world.full(false).await?;
        let (middle, before) = dump(&world.client).await?;
        change(&world, "a").await?;
        world.write("b", 300).await?;
        let (_, after) = dump(&world.client).await?;
        let wanted = difference(&before, &after);
        ensure!(wanted.len() > 300 && wanted.values().collect::<BTreeSet<_>>().len() == 3, "{wanted:?}");

        let revision = middle.to_string();
        let delta = world.delta(middle, Compression::Gzip).await?;
        ensure!(changes(&world.dir, &["--after", &revision]).await?.0 == wanted, "by the delta");
        world.full(false).await?;
        let of_full = env.make_dir("full")?;
        duplicate(&world.dir, &of_full)?;
        fs::remove_file(of_full.join("v2").join(delta.name.to_string()))?;
        ensure!(changes(&of_full, &["--after", &revision]).await?.0 == wanted, "by the full snapshot");
        let (all, said) = changes(&of_full, &["--after", "0"]).await?;
        ensure!(all == difference(&BTreeMap::new(), &after), "from the beginning");
        ensure!(said["forgottenBefore"].is_null(), "{said}");
        let newest = said["reaches"].to_string();
        ensure!(changes(&of_full, &["--after", &newest]).await?.0.is_empty(), "after the end");

        // Etcd forgets what was deleted, and the answer says so.
        world.client.kv_client().compact(newest.parse()?, Some(physical())).await?;
        world.client.kv_client().put("/last", "", None).await?;
        world.full(false).await?;
        let (found, said) = changes(&world.dir, &["--after", &revision]).await?;
        ensure!(found.get("/last").is_some_and(|word| word == "Created"), "{found:?}");
        ensure!(said["forgottenBefore"] == said["reaches"].as_i64().unwrap_or_default() - 1, "{said}");
        let text =
            snapshots(&["changes", "--store", &url(&world.dir), "--after", &revision]).await?.text()?;
        ensure!(text.contains("\nCreated /last\n") && text.contains("may be missing here"), "{text}");
        Ok(())
    });
}

fn physical() -> CompactionOptions {
    CompactionOptions::new().with_physical()
}

#[test]
fn revisions_that_no_snapshot_holds_are_an_error() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("a", 20).await?;
        let (begin, _) = dump(&world.client).await?;
        world.write("a", 20).await?;
        let (middle, _) = dump(&world.client).await?;
        world.write("a", 20).await?;
        world.delta(middle, Compression::Gzip).await?;
        let (store, after) = (url(&world.dir), begin.to_string());
        let failed = snapshots(&["changes", "--store", &store, "--after", &after]).await?;
        let is_told = failed.stderr.contains("do not hold all that came after");
        ensure!(!failed.succeeded() && is_told, "{}", failed.stderr);
        Ok(())
    });
}

#[test]
fn late_final_snapshot_is_kept_beside_and_reported_and_never_restored() {
    run(async |env| {
        let (world, target) = (World::start(env).await?, env.make_dir("target")?);
        world.write("a", 50).await?;
        world.full(false).await?;
        let (held, before) = dump(&world.client).await?;
        let (source, to) = (url(&world.dir), url(&target));
        snapshots(&["copy", "--source", &source, "--target", &to]).await?.text()?;
        // The etcd of the target has raised its revision, and writes to the same history.
        let own: SnapshotName = "Full-00000000-1000000100-1795710000.gz".parse()?;
        put(&open(&target)?, &own, Bytes::from_static(b"not read here"), Mode::Create).await?;
        let (copied, current) = (content(&target)?, open(&target)?.current_history().await?);

        change(&world, "a").await?;
        world.client.kv_client().put("/line\nbreak", "secret value", None).await?;
        let late = world.full(true).await?.name.to_string();
        let (_, after) = dump(&world.client).await?;
        let args = ["late", "--source", &source, "--target", &to, "--name", &late, "--history", "late-1"];
        let report = snapshots(&args).await?.json()?;
        let wanted = difference(&before, &after);
        let count = |word: &str| wanted.values().filter(|other| *other == word).count();
        for (field, word) in [("created", "Created"), ("updated", "Updated"), ("deleted", "Deleted")] {
            ensure!(report[field] == count(word) && count(word) > 0, "{field}: {report}, wanted {wanted:?}");
        }
        let last = report["keys"].as_array().context("no keys")?.last().context("no key")?;
        ensure!(report["heldRevision"] == held.0 && last == r"/line\nbreak", "{report}");
        ensure!(!report.to_string().contains("secret value"), "{report}");

        // Nothing is led to it: what is restored is what was before.
        let store = open(&target)?;
        ensure!(content(&target)? == copied && store.current_history().await? == current);
        fs::remove_file(target.join("v2").join(own.to_string()))?;
        let restored = restore(&store, env.path().join("restored")).await?;
        ensure!(restored.plan.reaches() == held, "{:?}", restored.plan);
        // Again after a lost answer: the same.
        ensure!(snapshots(&args).await?.json()? == report);
        // Where the copies were collected meanwhile, it is still known what the other etcd began with.
        let end = report["revision"].to_string();
        let known = snapshots(&[&args[..], &["--held", &end]].concat()).await?.json()?;
        ensure!(
            known["keys"] == serde_json::json!([]) && known["heldRevision"] == report["revision"],
            "{known}"
        );
        let after = held.to_string();
        let (named, _) = changes(&target, &["--history", "late-1", "--after", &after]).await?;
        ensure!(named.len() == wanted.len(), "{named:?}");

        let refused = [&args[..8], &["first"]].concat();
        let refused = snapshots(&refused).await?;
        ensure!(!refused.succeeded() && refused.stderr.contains("other than"), "{}", refused.stderr);
        let gone = ["--name", "Full-00000000-00000001-1700000000.gz.final", "--history", "late-2"];
        let gone = snapshots(&[&args[..5], &gone].concat()).await?;
        ensure!(!gone.succeeded() && gone.stderr.contains("has no snapshot"), "{}", gone.stderr);
        Ok(())
    });
}

/// An etcd begins with the newest snapshots; the older ones follow while it writes to the same store.
#[test]
fn newest_snapshots_are_copied_first_and_older_ones_follow() {
    run(async |env| {
        let (world, target) = (World::start(env).await?, env.make_dir("target")?);
        let mut names = Vec::new();
        for part in ["a", "b", "c"] {
            world.write(part, 10).await?;
            let full = world.full(false).await?.name;
            names.push(full.to_string());
            world.write(part, 10).await?;
            names.push(world.delta(full.last, Compression::Gzip).await?.name.to_string());
        }
        let (source, to) = (url(&world.dir), url(&target));
        let copy = async |scope: &str| -> Result<BTreeSet<String>> {
            snapshots(&["copy", "--source", &source, "--target", &to, "--scope", scope]).await?.text()?;
            let there = open(&target)?.list().await?;
            Ok(there.iter().map(|one| one.name.to_string()).collect())
        };
        let newest: BTreeSet<String> = names[4..].iter().cloned().collect();
        ensure!(copy("newest").await? == newest, "{names:?}");
        let store = open(&target)?;
        store.make_current("of-the-etcd").await?;
        // What the source stores now came too late for that etcd.
        world.write("d", 10).await?;
        world.full(true).await?;
        ensure!(copy("older").await? == names.iter().cloned().collect(), "not all older ones, and no other");
        ensure!(store.current_history().await? == "of-the-etcd", "readers are led away from the etcd");
        Ok(())
    });
}
