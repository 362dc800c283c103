//! What objects come to at rest (P13), beside their JSON and what gardenlet makes of it; and the size of programs (P22).

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use repot_tests::TestEnv;
use repot_tests::binaries;
use repot_tests::repot::{Repot, program};
use repot_tests::states::Payload;
use repot_tests::tool;
use serde_json::json;

use super::{Report, SETTLE, STORED};
use crate::body::Body;
use crate::load::Line;
use crate::proc;
use crate::servers::{self, Servers, Side};

const MB: usize = 1_000_000;
const OBJECTS: u64 = 100;
const FIRST: u64 = 70_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Both sorts of payload at all sides, then programs.
pub async fn measure(env: &TestEnv, servers: &mut Servers, report: &mut Report) -> Result<()> {
    for (payload, first) in [(Payload::Realistic, FIRST), (Payload::Incompressible, FIRST + OBJECTS)] {
        let sort = format!("{payload:?}").to_lowercase();
        let what = format!("{OBJECTS} objects of 1 MB, {sort}, at rest");
        let bodies = |side| {
            (0..OBJECTS)
                .map(|at| Ok(Body::generate(side, STORED, MB, payload, at)?.with(first + at)))
                .collect::<Result<Vec<Bytes>>>()
        };
        let json_bytes: usize = bodies(Side::Direct)?.iter().map(Bytes::len).sum();
        let tell =
            |bytes: u64| json!({ "MB": bytes as f64 / 1e6, "ofJSON": bytes as f64 / json_bytes as f64 });
        report.add("P13", &what, "JSON", tell(json_bytes as u64));
        for side in [Side::SameEtcd, Side::Crd] {
            let before = servers.etcd_bytes().await?;
            create(servers.line(side), side, bodies(side)?).await?;
            let used = servers.etcd_bytes().await?.saturating_sub(before);
            report.add("P13", &what, &format!("{}, in use in its database", side.name()), tell(used));
        }
        let used = embedded(env, servers, bodies(Side::Direct)?).await?;
        report.add("P13", &what, "Repot, embedded: all files", tell(used));
        let begun = Instant::now();
        let packed = bodies(Side::Direct)?.iter().map(gzip_as_text).sum::<Result<usize>>()?;
        let mut readings = tell(packed as u64);
        readings["millisOfOne"] = (begun.elapsed().as_secs_f64() * 1000.0 / OBJECTS as f64).into();
        report.add("P13", &what, "gzip -9 and base64, without any store", readings);
    }
    for (name, path) in [
        ("repot", program()?),
        ("kube-apiserver", binaries::find("kube-apiserver")?),
        ("etcd", binaries::find("etcd")?),
    ] {
        let readings = json!({ "MiB": std::fs::metadata(&path)?.len() as f64 / f64::from(1 << 20), "libraries": libraries(&path).await? });
        report.add("P22", "size of the program", name, readings);
    }
    Ok(())
}

async fn create(line: &Line, side: Side, bodies: Vec<Bytes>) -> Result<()> {
    for body in bodies {
        let request = line.api().request(reqwest::Method::POST, &side.collection(STORED));
        request.header("content-type", "application/json").body(body).send().await?.error_for_status()?;
    }
    Ok(())
}

/// A store of its own, stopped before its files are counted.
async fn embedded(env: &TestEnv, servers: &mut Servers, bodies: Vec<Bytes>) -> Result<u64> {
    let dir = env.make_dir("at-rest")?;
    let keys = repot_tests::repot::write_encryption_config(&dir)?;
    let store = dir.join("store");
    let flags = [
        format!("--encryption-provider-config={}", keys.display()),
        format!("--storage=embedded:{}", store.display()),
    ];
    let garden = servers.garden();
    let mut repot = Repot::replica(env, garden, flags).await?;
    create(&Line::new(&servers::access(garden, &repot), 1)?, Side::Direct, bodies).await?;
    // What is written twice for a moment, in a journal and where it stays, is given back by itself.
    tokio::time::sleep(SETTLE).await;
    repot.process().stop(PATIENCE).await?;
    Ok(proc::disk_bytes(&store))
}

/// How long the text is that gardenlet would store.
fn gzip_as_text(json: &Bytes) -> Result<usize> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::new(9));
    gzip.write_all(json)?;
    Ok(STANDARD.encode(gzip.finish()?).len())
}

/// How many shared libraries a program needs.
async fn libraries(program: &Path) -> Result<usize> {
    let mut ldd = tokio::process::Command::new("ldd");
    ldd.arg(program);
    // Of a program without any it says so, and fails.
    let output = tool::run(ldd, b"").await.context("ldd")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains("=>")).count())
}
