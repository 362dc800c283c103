//! From a live etcd into a store.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::Bench;
use super::contest::{Side, WorkDir};
use super::fixture::{World, bytes_in, url};
use super::report::Amount;

pub(super) async fn bench(bench: &mut Bench<'_>, world: &World) -> Result<()> {
    let cell = "take a snapshot";
    if !bench.wants(cell) {
        return Ok(());
    }
    let mut sides = sides(bench, world);
    bench.ground.measure(&mut sides).await?;
    let amount = Amount::Bytes(world.db_bytes()?);
    bench.report.add(cell, amount, &sides);
    bench.say(cell);
    Ok(())
}

fn sides<'a>(bench: &Bench<'_>, world: &'a World) -> Vec<Side<'a>> {
    let (repot, etcdctl) = (bench.programs.repot.clone(), bench.programs.etcdctl.clone());
    let endpoint = world.endpoint();
    let ours = endpoint.clone();
    let make_repot = move |place: &WorkDir| {
        let mut command = Command::new(&repot);
        command.args(["snapshots", "take", "--name", "b", "--owner", "bench", "--endpoints", &ours]);
        command.arg("--store").arg(url(&place.dir.join("store"))).arg("--scratch").arg(&place.dir);
        Ok(command)
    };
    let saved = endpoint.clone();
    let make_etcdctl = move |place: &WorkDir| {
        let mut command = Command::new(&etcdctl);
        command.args(["--endpoints", &saved, "snapshot", "save"]).arg(place.dir.join("snapshot.db"));
        Ok(command)
    };
    let whole = world.db_bytes();
    let whole = move || whole.as_ref().ok().copied().context("the length of the database");
    let expected = whole().unwrap_or_default();
    let is_saved = move |place: &WorkDir| holds(&place.dir.join("snapshot.db"), expected);
    let mut sides = vec![
        Side::new("repot snapshots take, gzip", make_repot, |place| {
            is_stored(&place.dir.join("store/backups/b"))
        }),
        Side::new("etcdctl snapshot save, not compressed", make_etcdctl, is_saved),
        Side::new(
            "cp of the database and sync",
            |place| Ok(cp(&world.db, &place.dir.join("db"))),
            |_| Ok(()),
        ),
    ];
    if let Some(program) = bench.etcdbrctl() {
        let program = program.to_owned();
        let make = move |place: &WorkDir| {
            let mut command = Command::new(&program);
            command.args(["snapshot", "--endpoints", &endpoint, "--storage-provider", "Local"]);
            // Its containers are below its home.
            command.env("HOME", "/").arg("--store-container").arg(place.dir.join("store"));
            command.arg("--snapstore-temp-directory").arg(&place.dir).args(["--delta-snapshot-period", "0"]);
            Ok(command)
        };
        let side = Side::new("etcdbrctl snapshot, gzip", make, |place| is_stored(&place.dir.join("store")));
        sides.push(side.until_logged("saved full snapshot at"));
    }
    sides
}

/// `cp` of a file, and then to disk.
pub(super) fn cp(from: &Path, to: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", r#"cp "$1" "$2" && sync "$2""#, "cp"]).arg(from).arg(to);
    command
}

fn is_stored(store: &Path) -> Result<()> {
    ensure!(bytes_in(store)? > 1000, "{} has no snapshot", store.display());
    Ok(())
}

fn holds(file: &Path, bytes: u64) -> Result<()> {
    let found = std::fs::metadata(file)?.len();
    // etcd may write on between two snapshots.
    ensure!(found >= bytes / 2, "{} has {found} bytes in place of {bytes}", file.display());
    Ok(())
}
