//! From a store into a data directory.

use std::path::Path;

use anyhow::{Result, ensure};
use tokio::process::Command;

use super::Bench;
use super::contest::{Side, WorkDir};
use super::fixture::{World, url};
use super::report::Amount;
use super::takes::cp;

const MEMBER: [&str; 6] = [
    "--name",
    "default",
    "--initial-cluster",
    "default=http://localhost:2380",
    "--initial-advertise-peer-urls",
    "http://localhost:2380",
];

pub(super) async fn bench(bench: &mut Bench<'_>, world: &World) -> Result<()> {
    for (what, store) in [("not compressed", &world.plain), ("in gzip", &world.gzip)] {
        let cell = format!("restore a full snapshot, {what}");
        if !bench.wants(&cell) {
            continue;
        }
        let mut sides = from_store(bench, store);
        sides.push(etcdutl(bench, world));
        let make = |place: &WorkDir| Ok(cp(&world.snapshot, &place.dir.join("data")));
        sides.push(Side::new("cp and sync", make, |_| Ok(())));
        bench.ground.measure(&mut sides).await?;
        bench.report.add(&cell, Amount::Bytes(world.db_bytes()?), &sides);
        bench.say(&cell);
    }
    let events = world.events()?;
    let cell = format!("restore {events} events of 4 KB in deltas");
    if bench.wants(&cell) {
        let mut sides = from_store(bench, &world.deltas);
        bench.ground.measure(&mut sides).await?;
        bench.report.add(&cell, Amount::Events(events), &sides);
        bench.say(&cell);
    }
    Ok(())
}

/// Those that read a store.
fn from_store<'a>(bench: &Bench<'_>, store: &'a Path) -> Vec<Side<'a>> {
    let (repot, etcd) = (bench.programs.repot.clone(), bench.programs.etcd.clone());
    let etcdutl = bench.programs.etcdutl.clone();
    let make_repot = move |place: &WorkDir| {
        let mut command = Command::new(&repot);
        command.args(["snapshots", "restore", "--store", &url(store), "--data-dir"]);
        command.arg(place.dir.join("data")).args(MEMBER);
        command.arg("--etcd").arg(&etcd).arg("--etcdutl").arg(&etcdutl);
        Ok(command)
    };
    let mut sides = vec![Side::new("repot snapshots restore", make_repot, is_restored)];
    if let Some(program) = bench.etcdbrctl() {
        let program = program.to_owned();
        let make = move |place: &WorkDir| {
            let mut command = Command::new(&program);
            // Its containers are below its home.
            command.env("HOME", "/").args(["restore", "--storage-provider", "Local", "--store-container"]);
            command.arg(store).arg("--data-dir").arg(place.dir.join("data")).args(MEMBER);
            for flag in ["--restoration-temp-snapshots-dir", "--snapstore-temp-directory"] {
                command.arg(flag).arg(place.dir.join("temporary"));
            }
            Ok(command)
        };
        sides.push(Side::new("etcdbrctl restore", make, is_restored));
    }
    sides
}

/// As Repot asks for it, of a file that is there already.
fn etcdutl<'a>(bench: &Bench<'_>, world: &'a World) -> Side<'a> {
    let program = bench.programs.etcdutl.clone();
    let make = move |place: &WorkDir| {
        let mut command = Command::new(&program);
        command.args(["snapshot", "restore"]).arg(&world.snapshot).arg("--data-dir");
        command.arg(place.dir.join("data")).args(MEMBER);
        command.args(["--bump-revision", "1000000000", "--mark-compacted"]);
        Ok(command)
    };
    Side::new("etcdutl snapshot restore", make, is_restored)
}

fn is_restored(place: &WorkDir) -> Result<()> {
    let db = place.dir.join("data/member/snap/db");
    ensure!(db.is_file(), "{} is missing", db.display());
    Ok(())
}
