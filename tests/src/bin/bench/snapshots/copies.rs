//! From store to store: directories and an object store, near and far, one large snapshot and many small ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_etcd::snapshot::copy;
use repot_etcd::snapshot::store::Store;
use repot_tests::s3::{BUCKET, S3Server};
use tokio::process::Command;

use super::Bench;
use super::contest::{Side, WorkDir};
use super::fixture::{World, bytes_in, open, url};
use super::report::Amount;

pub(super) async fn bench(bench: &mut Bench<'_>, world: &World) -> Result<()> {
    let gzip = ("1 snapshot in gzip", world.gzip.as_path());
    let plain = ("1 snapshot, not compressed", world.plain.as_path());
    let small = format!("{} small snapshots", bench.flags.objects);
    let small = (small.as_str(), world.small.as_path());
    for (what, source) in [plain, gzip, small] {
        let cell = format!("copy {what}, file to file");
        if bench.wants(&cell) {
            let mut sides = file_sides(bench, source);
            run(bench, &cell, source, &mut sides).await?;
        }
    }
    let far = [Duration::ZERO, Duration::from_millis(100)];
    for (round_trip, (what, source)) in far.into_iter().flat_map(|far| [gzip, small].map(|one| (far, one))) {
        let cell = format!("copy {what}, S3 to S3, round trip {} ms", round_trip.as_millis());
        if bench.wants(&cell) {
            let s3 = RemoteStore::start(bench, source, round_trip).await?;
            let mut sides = s3.sides(bench);
            run(bench, &cell, source, &mut sides).await?;
        }
    }
    Ok(())
}

async fn run(bench: &mut Bench<'_>, cell: &str, source: &Path, sides: &mut [Side<'_>]) -> Result<()> {
    bench.ground.measure(sides).await?;
    bench.report.add(cell, Amount::Bytes(bytes_in(source)?), sides);
    bench.say(cell);
    Ok(())
}

fn file_sides<'a>(bench: &Bench<'_>, source: &'a Path) -> Vec<Side<'a>> {
    let repot = bench.programs.repot.clone();
    let make_repot = move |place: &WorkDir| {
        let mut command = Command::new(&repot);
        command.args(["snapshots", "copy", "--source", &url(source), "--target", &url(&target_of(place))]);
        Ok(command)
    };
    let make_cp = move |place: &WorkDir| {
        let mut command = Command::new("sh");
        command.args(["-c", r#"cp -r "$1" "$2" && sync -f "$2""#, "cp"]);
        command.arg(source).arg(target_of(place));
        Ok(command)
    };
    let check = move |place: &WorkDir| is_copied(source, &target_of(place));
    let mut sides = vec![Side::new("repot snapshots copy", make_repot, check)];
    if let Some(program) = bench.etcdbrctl() {
        let program = program.to_owned();
        let make = move |place: &WorkDir| {
            let mut command = Command::new(&program);
            // Its containers are below its home.
            command.env("HOME", "/").arg("copy");
            command.args(["--source-storage-provider", "Local", "--source-store-container"]).arg(source);
            command.args(["--storage-provider", "Local", "--store-container"]).arg(target_of(place));
            add_temporary(&mut command, place);
            Ok(command)
        };
        sides.push(Side::new("etcdbrctl copy", make, check));
    }
    sides.push(Side::new("cp -r and sync", make_cp, check));
    sides
}

fn target_of(place: &WorkDir) -> PathBuf {
    place.dir.join("target")
}

fn add_temporary(command: &mut Command, place: &WorkDir) {
    for flag in ["--snapstore-temp-directory", "--source-snapstore-temp-directory"] {
        command.arg(flag).arg(&place.dir);
    }
}

fn is_copied(source: &Path, target: &Path) -> Result<()> {
    let (there, here) = (bytes_in(target)?, bytes_in(source)?);
    ensure!(there == here, "{} has {there} bytes in place of {here}", target.display());
    Ok(())
}

/// An object store at a distance, with the snapshots of a directory in it.
struct RemoteStore {
    server: S3Server,
    source: PathBuf,
    endpoint: String,
    /// Credentials as etcd-backup-restore reads them.
    secret: PathBuf,
}

/// The prefix of the source.
const SOURCE: &str = "source";

impl RemoteStore {
    async fn start(bench: &Bench<'_>, source: &Path, round_trip: Duration) -> Result<Self> {
        let server = S3Server::start(bench.env).await?;
        let (from, to) = (open(source)?, Store::open(&server.url(SOURCE), &server.environment())?);
        let report = copy::copy(&from, &to, copy::Options::default(), |_| {}).await?;
        ensure!(report.failed.is_empty(), "{:?}", report.failed);
        server.relay.set_round_trip(round_trip);
        // Without a distance nothing is between them that would take CPU time of its own.
        let near = server.endpoint_at(server.port());
        let endpoint = if round_trip.is_zero() { near } else { server.endpoint() };
        let secret = bench.env.make_dir("secret")?;
        server.mount_secret(&secret)?;
        fs::write(secret.join("endpoint"), &endpoint).context("the endpoint")?;
        Ok(Self { server, source: source.to_owned(), endpoint, secret })
    }

    fn sides<'a>(&'a self, bench: &Bench<'_>) -> Vec<Side<'a>> {
        let repot = bench.programs.repot.clone();
        let make_repot = move |place: &WorkDir| {
            let mut command = Command::new(&repot);
            command.env_remove("AWS_CA_BUNDLE");
            command.envs(self.server.environment()).env("AWS_ENDPOINT", &self.endpoint);
            command.args(["snapshots", "copy", "--source", &self.server.url(SOURCE)]);
            command.arg("--target").arg(self.server.url(&place.name));
            Ok(command)
        };
        let mut sides = vec![Side::new("repot snapshots copy", make_repot, |place| self.is_copied(place))];
        if let Some(program) = bench.etcdbrctl() {
            let program = program.to_owned();
            let make = move |place: &WorkDir| {
                let mut command = Command::new(&program);
                // With it, it refuses to start.
                command.env_remove("AWS_CA_BUNDLE");
                for variable in ["AWS_APPLICATION_CREDENTIALS", "SOURCE_AWS_APPLICATION_CREDENTIALS"] {
                    command.env(variable, &self.secret);
                }
                command.args(["copy", "--source-storage-provider", "S3", "--storage-provider", "S3"]);
                command.args(["--source-store-container", BUCKET, "--source-store-prefix", SOURCE]);
                command.args(["--store-container", BUCKET, "--store-prefix", &place.name]);
                add_temporary(&mut command, place);
                Ok(command)
            };
            sides.push(Side::new("etcdbrctl copy", make, |place| self.is_copied(place)));
        }
        sides
    }

    /// And gone again, to leave room for the next run.
    fn is_copied(&self, place: &WorkDir) -> Result<()> {
        let target = self.server.files(&place.name);
        is_copied(&self.source, &target)?;
        Ok(fs::remove_dir_all(target)?)
    }
}
