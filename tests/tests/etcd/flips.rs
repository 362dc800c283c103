//! Flipped bits and cut objects, at the source and at the target: every single one is found.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use repot_etcd::snapshot::copy::{Options, Outcome, copy};
use repot_etcd::snapshot::verify::{Severity, verify};
use repot_etcd_core::snapshot::Compression;
use repot_tests::run;
use repot_tests::test_env::TestEnv;

use super::copying::content;
use super::damage::Chance;
use super::world::{World, duplicate, open};

const SEED: u64 = 5;

/// How often something is harmed: more in `make soak`.
fn times() -> usize {
    if std::env::var_os("REPOT_SOAK").is_some() { 1000 } else { 100 }
}

/// A full snapshot and deltas in each compression that is written.
async fn mk_store(env: &TestEnv) -> Result<World> {
    let world = World::start(env).await?;
    world.write("early", 20).await?;
    let mut last = world.full(false).await?.name.last;
    for compression in [Compression::Gzip, Compression::Zlib, Compression::None] {
        world.write("late", 10).await?;
        last = world.delta(last, compression).await?.name.last;
    }
    Ok(world)
}

/// Snapshots and their records.
fn objects(dir: &Path) -> Result<Vec<PathBuf>> {
    Ok(content(dir)?.keys().map(|name| dir.join(name)).collect())
}

/// Flips a bit of one object or cuts it; says what was done to which snapshot.
fn harm(dir: &Path, chance: &mut Chance) -> Result<(String, String)> {
    let objects = objects(dir)?;
    let path = &objects[chance.below(objects.len())];
    let mut bytes = fs::read(path)?;
    let place = chance.below(bytes.len());
    let what = if chance.below(2) == 0 {
        bytes[place] ^= 1 << chance.below(8);
        format!("a bit of byte {place} of {}", path.display())
    } else {
        bytes.truncate(place);
        format!("the end from byte {place} of {}", path.display())
    };
    fs::write(path, bytes)?;
    let name = path.file_name().context("a name")?.to_string_lossy();
    Ok((name.trim_end_matches(".json").to_owned(), what))
}

/// What is wrong with how it was treated; `None` when it was found.
async fn judge(world: &World, env: &TestEnv, at: usize, chance: &mut Chance) -> Result<Option<String>> {
    let (harmed, other) = (env.path().join("harmed"), env.path().join("other"));
    duplicate(&world.dir, &harmed)?;
    let (name, what) = harm(&harmed, chance)?;
    let store = open(&harmed)?;
    let report = verify(&store, env.path(), 4, |_| {}).await?;
    let named = |found: &&_| -> bool {
        let found: &repot_etcd::snapshot::verify::Finding = found;
        found.severity == Severity::Problem && found.snapshot == name
    };
    let mut wrong = report.findings.iter().find(named).is_none().then(|| "verify".to_owned());
    if at.is_multiple_of(2) {
        // At the source: it goes nowhere, and the others do.
        let report = copy(&store, &open(&other)?, Options::default(), |_| {}).await?;
        let refused = report.failed.len() == 1
            && report.failed.iter().all(|(failed, error)| failed.to_string() == name && error.is_damage());
        let arrived = other.join("v2").join(&name).exists();
        if !refused || arrived || report.count(Outcome::Copied) != 3 {
            wrong = Some(format!("a copy of it: {report:?}"));
        }
        fs::remove_dir_all(&other)?;
    } else {
        // At the target: it is made good.
        let report = copy(&world.store, &store, Options::default(), |_| {}).await?;
        let good = content(&harmed)? == content(&world.dir)?;
        if !good || report.count(Outcome::Repaired) != 1 || report.count(Outcome::Present) != 3 {
            wrong = Some(format!("a copy onto it: {report:?}"));
        }
    }
    fs::remove_dir_all(&harmed)?;
    Ok(wrong.map(|wrong| format!("{what}: {wrong}")))
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    run(async |env| {
        let world = mk_store(env).await?;
        let report = verify(&world.store, env.path(), 4, |_| {}).await?;
        ensure!(report.is_good() && (report.snapshots, report.recorded) == (4, 4), "{report:?}");
        let mut chance = Chance(SEED);
        let mut missed = Vec::new();
        for at in 0..times() {
            missed.extend(judge(&world, env, at, &mut chance).await?);
        }
        println!("{} of {} were found", times() - missed.len(), times());
        assert!(missed.is_empty(), "{} of {} were missed:\n{}", missed.len(), times(), missed.join("\n"));
        Ok(())
    });
}
