//! A hundred things that can be wrong with snapshots, and all of them are found.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use repot_etcd::snapshot::restore::{Error, Progress, restore};
use repot_etcd::snapshot::verify::{Report, Severity, What, verify};
use repot_etcd_core::snapshot::{Compression, SnapshotName};
use repot_tests::run;
use repot_tests::test_env::TestEnv;

use super::world::{World, duplicate, open, options, snapshots, url};

/// The same ones in each run.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }
}

/// What is planted, and how often.
#[derive(Clone, Copy, Debug)]
enum PlantedDamage {
    BitFlip,
    Truncation,
    TruncationUnrecorded,
    NoTrailer,
    ForeignTrailer,
    SwappedDeltas,
    Gap,
    Overlap,
    NoFull,
    OldContent,
    Garbage,
    BrokenRecord,
}

const DAMAGES: &[(PlantedDamage, usize)] = &[
    (PlantedDamage::BitFlip, 30),
    (PlantedDamage::Truncation, 15),
    (PlantedDamage::TruncationUnrecorded, 15),
    (PlantedDamage::NoTrailer, 6),
    (PlantedDamage::ForeignTrailer, 6),
    (PlantedDamage::SwappedDeltas, 6),
    (PlantedDamage::Gap, 5),
    (PlantedDamage::Overlap, 5),
    (PlantedDamage::NoFull, 2),
    (PlantedDamage::OldContent, 3),
    (PlantedDamage::Garbage, 4),
    (PlantedDamage::BrokenRecord, 3),
];

async fn mk_store(env: &TestEnv) -> Result<World> {
    let world = World::start(env).await?;
    world.write("early", 30).await?;
    let mut last = world.full(false).await?.name.last;
    for at in 0..5 {
        world.write(&format!("delta-{at}"), 15).await?;
        last = world.delta(last, Compression::Gzip).await?.name.last;
    }
    Ok(world)
}

async fn look(dir: &Path, scratch: &Path) -> Result<Report> {
    Ok(verify(&open(dir)?, scratch, 4, |_| {}).await?)
}

#[test]
fn every_planted_fault_is_found() {
    run(async |env| {
        let world = mk_store(env).await?;
        let report = look(&world.dir, env.path()).await?;
        ensure!(report.is_good() && report.findings.is_empty(), "{report:?}");
        assert_eq!((report.snapshots, report.recorded), (6, 6));
        let mut chance = Chance(18);
        let (mut planted, mut missed) = (0, Vec::new());
        for (damage, times) in DAMAGES {
            for at in 0..*times {
                let dir = env.path().join("planted");
                duplicate(&world.dir, &dir)?;
                let what = apply(*damage, &dir, at, &mut chance).with_context(|| format!("{damage:?}"))?;
                let report = look(&dir, env.path()).await?;
                let found = report.findings.iter().any(|f| f.severity == Severity::Problem && f.what == what);
                if !found || report.is_good() {
                    missed.push(format!("{damage:?} {at}: {:?}", report.findings));
                }
                // A restore does not take it either, and leaves nothing at its place.
                let target = env.path().join("target");
                let outcome = restore(&open(&dir)?, &options(target.clone())?, &|_: Progress| {}).await;
                let refused = matches!(&outcome, Err(error) if error.is_damage());
                // Two deltas with the same events in them are no reason to refuse.
                if !refused && !matches!(damage, PlantedDamage::Overlap) {
                    missed.push(format!("{damage:?} {at} was restored: {outcome:?}"));
                }
                fs::remove_dir_all(&target).ok();
                fs::remove_dir_all(&dir)?;
                planted += 1;
            }
        }
        assert_eq!(planted, 100);
        assert!(missed.is_empty(), "{} of {planted} were missed:\n{}", missed.len(), missed.join("\n"));
        Ok(())
    });
}

fn names(dir: &Path) -> Result<Vec<SnapshotName>> {
    let text = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().parse()?);
    let mut names = fs::read_dir(dir.join("v2"))?.map(text).collect::<Result<Vec<SnapshotName>>>()?;
    names.sort();
    Ok(names)
}

fn file(dir: &Path, name: &SnapshotName) -> PathBuf {
    dir.join("v2").join(name.to_string())
}

fn record(dir: &Path, name: &SnapshotName) -> PathBuf {
    dir.join("integrity").join(format!("{name}.json"))
}

fn unpack(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn pack(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut encoder = flate2::write::GzEncoder::new(fs::File::create(path)?, flate2::Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()?;
    Ok(())
}

/// Plants a fault and says what has to be found. Without a record a snapshot is as other tools leave it.
fn apply(damage: PlantedDamage, dir: &Path, at: usize, chance: &mut Chance) -> Result<What> {
    let names = names(dir)?;
    let (full, deltas) = names.split_first().context("a full")?;
    let any = &names[chance.below(names.len())];
    let path = file(dir, any);
    match damage {
        PlantedDamage::BitFlip => {
            let mut bytes = fs::read(&path)?;
            let place = chance.below(bytes.len());
            bytes[place] ^= 1 << chance.below(8);
            fs::write(&path, bytes)?;
        }
        PlantedDamage::Truncation | PlantedDamage::TruncationUnrecorded => {
            let length = fs::metadata(&path)?.len();
            let rest = chance.below(usize::try_from(length)?);
            fs::File::options().write(true).open(&path)?.set_len(rest as u64)?;
            if matches!(damage, PlantedDamage::TruncationUnrecorded) {
                fs::remove_file(record(dir, any))?;
            }
        }
        PlantedDamage::NoTrailer | PlantedDamage::ForeignTrailer => {
            let mut bytes = unpack(&path)?;
            let end = bytes.len() - 32;
            bytes.truncate(end);
            if matches!(damage, PlantedDamage::ForeignTrailer) {
                bytes.extend([u8::try_from(at)?; 32]);
            }
            pack(&path, &bytes)?;
            fs::remove_file(record(dir, any))?;
        }
        PlantedDamage::SwappedDeltas => {
            let first = chance.below(deltas.len());
            let second = (first + 1 + chance.below(deltas.len() - 1)) % deltas.len();
            let (first, second) = (&deltas[first], &deltas[second]);
            let (a, b) = (fs::read(file(dir, first))?, fs::read(file(dir, second))?);
            fs::write(file(dir, first), b)?;
            fs::write(file(dir, second), a)?;
            fs::remove_file(record(dir, first))?;
            fs::remove_file(record(dir, second))?;
        }
        PlantedDamage::Gap => {
            fs::remove_file(file(dir, &deltas[at % (deltas.len() - 1)]))?;
            return Ok(What::Gap);
        }
        PlantedDamage::Overlap => {
            let again = &deltas[at % deltas.len()];
            let twin = SnapshotName { created: again.created + 1, ..again.clone() };
            fs::copy(file(dir, again), file(dir, &twin))?;
            return Ok(What::Overlap);
        }
        PlantedDamage::NoFull => {
            fs::remove_file(file(dir, full))?;
            return Ok(What::NoFull);
        }
        PlantedDamage::OldContent => {
            let last = repot_etcd_core::snapshot::Revision(full.last.0 + 1 + i64::try_from(at)?);
            fs::rename(file(dir, full), file(dir, &SnapshotName { last, ..full.clone() }))?;
            return Ok(What::RevisionDiffers);
        }
        PlantedDamage::Garbage => {
            fs::File::options().append(true).open(&path)?.write_all(b"\0")?;
            fs::remove_file(record(dir, any))?;
        }
        PlantedDamage::BrokenRecord => fs::write(record(dir, any), "{")?,
    }
    Ok(What::Damaged)
}

#[test]
fn deltas_of_different_histories_are_not_mixed() {
    run(async |env| {
        let world = mk_store(env).await?;
        let all = names(&world.dir)?;
        let newest = all.last().context("a delta")?;
        // A delta of the same revisions and one more, in which one value is another.
        let bytes = unpack(&file(&world.dir, newest))?;
        let text = String::from_utf8_lossy(&bytes[..bytes.len() - 32]).into_owned();
        let events: Vec<repot_etcd::snapshot::codec::Event> = serde_json::from_str(&text)?;
        let mut draft = repot_etcd::snapshot::take::Draft::new(
            Compression::Gzip,
            repot_etcd_core::snapshot::Revision(newest.start.0 - 1),
        )?;
        let mut more = events.last().context("an event")?.clone();
        more.mod_revision = newest.last.next();
        for (at, event) in events.into_iter().chain([more]).enumerate() {
            let mut event = event;
            if at == 3 {
                event.value = b"another".to_vec();
            }
            draft.push(&event, jiff::Timestamp::now())?;
        }
        draft.save(&world.store, jiff::Timestamp::now()).await?;
        // Beside the older one, of which a part reaches into it.
        let report = look(&world.dir, env.path()).await?;
        let said =
            report.findings.iter().find(|finding| finding.what == What::Overlap).context("an overlap")?;
        assert!(said.message.contains("different histories"), "{}", said.message);
        let output = snapshots(&["verify", "--store", &url(&world.dir), "--output", "json"]).await?;
        assert_eq!(output.code, 3, "{output:?}");
        Ok(())
    });
}

#[test]
fn overlaps_that_disagree_are_refused_by_a_restore() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("early", 5).await?;
        let full = world.full(false).await?;
        world.write("a", 10).await?;
        let first = world.delta(full.name.last, Compression::Gzip).await?;
        world.write("b", 10).await?;
        let after = repot_etcd_core::snapshot::Revision(first.name.start.0 + 3);
        let second = world.delta(after, Compression::Gzip).await?;
        // One letter in an event of both; the hash is made good again.
        let path = file(&world.dir, &second.name);
        let mut bytes = unpack(&path)?;
        bytes.truncate(bytes.len() - 32);
        let text = String::from_utf8(bytes)?.replacen("L2Ev", "L0Ev", 1);
        let hash = aws_hash(text.as_bytes());
        pack(&path, &[text.as_bytes(), &hash].concat())?;
        fs::remove_file(record(&world.dir, &second.name))?;
        let target = env.path().join("target");
        let outcome = restore(&world.store, &options(target.clone())?, &|_: Progress| {}).await;
        assert!(matches!(outcome, Err(Error::Disagree { .. })), "{outcome:?}");
        assert!(!target.exists());
        Ok(())
    });
}

fn aws_hash(bytes: &[u8]) -> [u8; 32] {
    let mut hash = repot_etcd::snapshot::codec::Sha256::default();
    hash.update(bytes);
    hash.finish()
}
