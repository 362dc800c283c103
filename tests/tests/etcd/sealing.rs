//! Snapshots that rest sealed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use repot_etcd::backup::Backups;
use repot_etcd::snapshot::copy::{Options, Outcome, Report, copy};
use repot_etcd::snapshot::store::{Environment, Store};
use repot_etcd::snapshot::take;
use repot_etcd::snapshot::verify::{What, verify};
use repot_etcd_core::snapshot::Compression;
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use repot_tests::{encryption, tool};
use serde_json::Value;

use super::damage::Chance;
use super::world::{Revived, World, command, dump, duplicate, open, restore, snapshots, url};

/// Opens a store with keys.
fn open_sealed(dir: &Path, config: &Path) -> Result<Store> {
    let variable = ("STORE_ENCRYPTION_PROVIDER_CONFIG".to_owned(), config.display().to_string());
    Ok(Store::open(&url(dir), &Environment::from([variable]))?)
}

fn write_config(env: &TestEnv, name: &str, providers: &[&Value]) -> Result<PathBuf> {
    let file = env.path().join(name);
    encryption::write_config(&file, &encryption::config(providers).to_string())?;
    Ok(file)
}

/// A full snapshot that is not compressed, and a delta after it, in a store with keys.
async fn mk_world(env: &TestEnv, config: &Path) -> Result<World> {
    let mut world = World::start(env).await?;
    world.store = open_sealed(&world.dir, config)?;
    world.write("secret-of-early", 60).await?;
    let how = (Compression::None, false);
    let full = take::full(&world.client, &world.store, env.path(), how, Timestamp::now()).await?;
    world.write("secret-of-late", 40).await?;
    world.delta(full.name.last, Compression::Gzip).await?;
    Ok(world)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

fn holds(dir: &Path, word: &[u8]) -> Result<bool> {
    for file in files(dir)? {
        if fs::read(file)?.windows(word.len()).any(|part| part == word) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn looks(store: &Store, scratch: &Path) -> Result<Vec<What>> {
    let report = verify(store, scratch, 2, |_| {}).await?;
    Ok(report.findings.iter().map(|finding| finding.what).collect())
}

#[test]
fn sealed_snapshots_show_nothing_and_restore_whole() {
    run(async |env| {
        let key = encryption::provider("aesgcm", "one")?;
        let config = write_config(env, "keys.yaml", &[&key])?;
        let world = mk_world(env, &config).await?;
        let (_, before) = dump(&world.client).await?;
        let word = b"secret-of-early";
        ensure!(!holds(&world.dir, word)?, "something rests in clear");
        ensure!(!world.dir.join("v2").exists(), "other tools would find a snapshot that they cannot read");
        ensure!(looks(&world.store, env.path()).await?.is_empty(), "it is not found to be good");
        // The same in clear does show it, or the look above proves nothing.
        let clear = env.make_dir("clear")?;
        let how = (Compression::None, false);
        take::full(&world.client, &open(&clear)?, env.path(), how, Timestamp::now()).await?;
        ensure!(holds(&clear, word)?, "the word is not looked for in the right way");

        restore(&world.store, env.path().join("restored")).await?;
        let revived = Revived::start(env, &env.path().join("restored")).await?;
        let (_, after) = dump(&revived.client).await?;
        ensure!(after == before, "it is not what was there before");
        // By hand, and under a newer key.
        let other = encryption::provider("secretbox", "two")?;
        let rotated = write_config(env, "rotated.yaml", &[&other, &key])?;
        let args = ["verify", "--store", &url(&world.dir), "--output", "json"];
        let mut verify = command(&args)?;
        verify.env("STORE_ENCRYPTION_PROVIDER_CONFIG", &rotated);
        let output = tool::run(verify, b"").await?;
        ensure!(output.code == 0, "{output:?}");
        let listed = snapshots(&["list", "--store", &url(&world.dir), "--output", "json"]).await?;
        let listed: Value = serde_json::from_slice(&listed.stdout)?;
        ensure!(listed["snapshots"].as_array().is_some_and(|all| all.len() == 2), "{listed}");
        ensure!(listed["snapshots"][0]["sealed"] == true, "{listed}");
        Ok(())
    });
}

#[test]
fn wrong_keys_are_no_damage_and_damage_is_no_matter_of_keys() {
    run(async |env| {
        let key = encryption::provider("aesgcm", "one")?;
        let config = write_config(env, "keys.yaml", &[&key])?;
        let world = mk_world(env, &config).await?;
        let same_name = write_config(env, "same.yaml", &[&encryption::provider("aesgcm", "one")?])?;
        let other_name = write_config(env, "other.yaml", &[&encryption::provider("secretbox", "x")?])?;
        let stores = [
            ("without keys", open(&world.dir)?),
            ("with another key of the name", open_sealed(&world.dir, &same_name)?),
            ("with another key", open_sealed(&world.dir, &other_name)?),
        ];
        for (what, store) in &stores {
            let found = looks(store, env.path()).await?;
            ensure!(found == [What::Unreadable, What::Unreadable], "{what}: {found:?}");
            let error = restore(store, env.path().join("never")).await.err().context(*what)?;
            let error = error.downcast::<repot_etcd::snapshot::restore::Error>()?;
            ensure!(!error.is_damage(), "{what}: {error:?}");
        }
        // Each changed byte is damage, whoever holds which keys, and with keys also where nothing was recorded.
        let mut chance = Chance(77);
        for round in 0..60 {
            let dir = env.path().join(format!("damaged-{round}"));
            duplicate(&world.dir, &dir)?;
            let sealed = files(&dir.join("sealed"))?;
            let file = &sealed[chance.below(sealed.len())];
            let mut bytes = fs::read(file)?;
            // Often in what opens it all.
            let at = chance.below(if round % 3 == 0 { 130 } else { bytes.len() });
            match round % 4 {
                0 => bytes.truncate(at),
                _ => bytes[at] ^= 1 << chance.below(8),
            }
            fs::write(file, &bytes)?;
            let found = looks(&open_sealed(&dir, &config)?, env.path()).await?;
            ensure!(found == [What::Damaged], "{round}, byte {at}: {found:?}");
            fs::remove_dir_all(dir.join("integrity"))?;
            let found = looks(&open_sealed(&dir, &config)?, env.path()).await?;
            // Of the key that is before everything else nobody can tell then whether it was changed or is another one.
            let of_key = at < 130 && found == [What::Unreadable];
            ensure!(of_key || found == [What::Damaged], "{round}, byte {at}: {found:?}");
            fs::remove_dir_all(dir)?;
        }
        Ok(())
    });
}

async fn copied(from: &Store, to: &Path) -> Result<Report> {
    Ok(copy(from, &open(to)?, Options::default(), |_| {}).await?)
}

#[test]
fn sealed_snapshots_are_copied_as_they_are_without_keys() {
    run(async |env| {
        let config = write_config(env, "keys.yaml", &[&encryption::provider("aesgcm", "one")?])?;
        let world = mk_world(env, &config).await?;
        let target = env.make_dir("target")?;
        for expected in [Outcome::Copied, Outcome::Present] {
            let report = copied(&open(&world.dir)?, &target).await?;
            ensure!(report.failed.is_empty() && report.count(expected) == 2, "{report:?}");
        }
        for file in files(&world.dir.join("sealed"))? {
            let name = file.file_name().context("a name")?;
            ensure!(fs::read(&file)? == fs::read(target.join("sealed").join(name))?, "{name:?} differs");
        }
        restore(&open_sealed(&target, &config)?, env.path().join("restored")).await?;
        // Where nothing was recorded it has to be read, and for that it has to be opened.
        fs::remove_dir_all(world.dir.join("integrity"))?;
        let another = env.make_dir("another")?;
        let report = copied(&open(&world.dir)?, &another).await?;
        ensure!(report.failed.len() == 2 && report.done.is_empty(), "{report:?}");
        let error = &report.failed[0].1;
        let said = error.to_string();
        ensure!(said.contains("STORE_ENCRYPTION_PROVIDER_CONFIG") && !error.is_damage(), "{said}");
        let report = copied(&open_sealed(&world.dir, &config)?, &another).await?;
        ensure!(report.count(Outcome::Copied) == 2, "{report:?}");
        Ok(())
    });
}

#[test]
fn keys_that_seal_nothing_are_refused_and_clear_snapshots_go_on() {
    run(async |env| {
        let key = encryption::provider("aesgcm", "one")?;
        let identity = serde_json::json!({"identity": {}});
        let config = write_config(env, "clear.yaml", &[&identity, &key])?;
        let mut world = World::start(env).await?;
        world.write("early", 20).await?;
        let full = world.full(false).await?;
        let mut list = command(&["list", "--store", &url(&world.dir)])?;
        list.env("STORE_ENCRYPTION_PROVIDER_CONFIG", &config);
        let output = tool::run(list, b"").await?;
        ensure!(output.code == 2 && output.stderr.contains("identity"), "{output:?}");
        let error = open_sealed(&world.dir, &env.path().join("none.yaml")).err().context("it opened")?;
        ensure!(format!("{error:#}").contains("none.yaml"), "{error:#}");
        // What was taken before there were keys is the beginning of what is sealed now.
        let config = write_config(env, "keys.yaml", &[&key])?;
        world.write("late", 20).await?;
        world.store = open_sealed(&world.dir, &config)?;
        world.delta(full.name.last, Compression::Gzip).await?;
        let (_, before) = dump(&world.client).await?;
        restore(&world.store, env.path().join("restored")).await?;
        let revived = Revived::start(env, &env.path().join("restored")).await?;
        ensure!(dump(&revived.client).await?.1 == before, "it is not what was there before");
        Ok(())
    });
}

/// Imports into a backup, with these keys for the store and for the source.
async fn import(from: &Path, to: &Path, name: &str, keys: [Option<&Path>; 2]) -> Result<tool::Output> {
    let (from, to) = (url(from), url(to));
    let args = ["import", "--source", &from, "--store", &to, "--name", name, "--owner", "of-a-test"];
    let mut import = command(&args)?;
    let names = ["STORE_ENCRYPTION_PROVIDER_CONFIG", "SOURCE_STORE_ENCRYPTION_PROVIDER_CONFIG"];
    import.envs(names.into_iter().zip(keys).filter_map(|(name, keys)| Some((name, keys?))));
    tool::run(import, b"").await
}

/// Snapshots of somebody else, with other keys than ours.
struct Foreign {
    ours: PathBuf,
    theirs: PathBuf,
    world: World,
    /// The same in clear.
    clear: PathBuf,
}

impl Foreign {
    async fn start(env: &TestEnv) -> Result<Self> {
        let ours = write_config(env, "ours.yaml", &[&encryption::provider("secretbox", "ours")?])?;
        let theirs = write_config(env, "theirs.yaml", &[&encryption::provider("aesgcm", "theirs")?])?;
        let world = mk_world(env, &theirs).await?;
        // A store without keys has no use for what is sealed.
        let plain = env.make_dir("plain")?;
        import(&world.dir, &plain, "b", [None, Some(&theirs)]).await?.text()?;
        Ok(Self { ours, theirs, world, clear: plain.join("backups/b") })
    }
}

#[test]
fn imported_backup_is_sealed_with_the_keys_of_its_store_alone() {
    run(async |env| {
        let Foreign { ours, theirs, world, clear } = Foreign::start(env).await?;
        let (_, wanted) = dump(&world.client).await?;
        let target = env.make_dir("target")?;
        let backups = Backups::of(&open_sealed(&target, &ours)?);
        for (name, from, keys) in [("sealed", &world.dir, Some(theirs.as_path())), ("clear", &clear, None)] {
            import(from, &target, name, [Some(&ours), keys]).await?.text()?;
            ensure!(!holds(&target, b"secret-of")?, "{name}: something rests in clear");
            let data = env.path().join(format!("restored-{name}"));
            restore(&backups.store(name)?, data.clone()).await?;
            let (_, found) = dump(&Revived::start(env, &data).await?.client).await?;
            ensure!(found == wanted, "{name}: it is not what was there before");
            let there: u64 = backups.store(name)?.list().await?.iter().map(|one| one.bytes).sum();
            let record = backups.taken(name).await?.context("no record")?;
            ensure!(record.bytes == Some(there), "{name}: {record:?}, and {there} bytes");
        }
        for keys in [[None, None], [Some(ours.as_path()), None]] {
            let refused = import(&world.dir, &target, "c", keys).await?;
            ensure!(!refused.succeeded() && refused.stderr.contains("no keys are configured"), "{refused:?}");
        }
        Ok(())
    });
}

/// Whatever it is that is wrong, it is found on the way, told of the source, and nothing of it rests in the backup.
#[test]
fn damage_is_not_imported() {
    run(async |env| {
        let Foreign { ours, theirs, world, clear } = Foreign::start(env).await?;
        let target = env.make_dir("target")?;
        for (name, from, form) in [("sealed", &world.dir, "sealed"), ("clear", &clear, "v2")] {
            for recorded in [true, false] {
                let dir = env.path().join(format!("{name}-{recorded}"));
                duplicate(from, &dir)?;
                let all = files(&dir.join(form))?;
                let full =
                    all.iter().find(|file| file.to_string_lossy().contains("Full")).context("no full")?;
                let mut bytes = fs::read(full)?;
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(full, bytes)?;
                if !recorded {
                    fs::remove_dir_all(dir.join("integrity"))?;
                }
                let backup = format!("{name}-{recorded}");
                let refused = import(&dir, &target, &backup, [Some(&ours), Some(&theirs)]).await?;
                let told = format!("{}/{form}/", url(&dir));
                ensure!(
                    !refused.succeeded() && refused.stderr.contains("is damaged"),
                    "{backup}: {refused:?}"
                );
                ensure!(refused.stderr.contains(&told), "{backup}, {told}: {refused:?}");
                let left: Vec<PathBuf> = files(&target.join("backups").join(&backup))?;
                let full = left.iter().filter(|file| file.to_string_lossy().contains("Full"));
                ensure!(full.count() == 0, "{left:?}");
            }
        }
        Ok(())
    });
}
