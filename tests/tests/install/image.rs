//! The images that `make image` has written, in the steps of the quick start and as members of an etcd.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use repot_tests::install::{ImageSource, NAMESPACE, World};
use repot_tests::oci::Archive;
use repot_tests::{binaries, run};

use super::seed;

const API: &str = "v1alpha1.core.gardener.cloud";

/// Where `deploy/image/build` writes.
fn archives() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("IMAGE_OUT") {
        return Ok(dir.into());
    }
    let dir = binaries::profile_dir()?.with_file_name("image");
    dir.canonicalize().with_context(|| format!("{} is missing: `make image` makes it", dir.display()))
}

#[test]
#[ignore = "needs make image; in make soak"]
fn archives_are_what_their_digests_say() {
    run(async |env| {
        for name in ["repot", "repot-etcd"] {
            let dir = env.make_dir(name)?;
            let archive = archives()?.join(format!("{name}.oci.tar"));
            let mut archive = Archive::open(&archive, dir.join("layout")).await?;
            let digest = std::fs::read_to_string(archives()?.join(format!("{name}.digest")))?;
            ensure!(archive.digest()? == digest.trim(), "{} is not {digest}", archive.digest()?);
            let mut expected = 0;
            for architecture in archive.architectures()? {
                let root = dir.join(&architecture);
                archive.unpack_for(&architecture, &root).await?;
                // An index, and for each architecture a manifest, a configuration and two or three layers.
                expected += 5;
                ensure!(archive.verified.len() >= expected, "{:?}", archive.verified);
                check_root(&root).with_context(|| format!("{name} for {architecture}"))?;
            }
            harm(&dir.join("layout")).await?;
        }
        Ok(())
    });
}

/// Nothing is there that a program of Repot does not need, and nobody may change what is.
fn check_root(root: &Path) -> Result<()> {
    let mut top: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(root)? {
        top.push(entry?.file_name().to_string_lossy().into_owned());
    }
    top.sort();
    ensure!(top == ["etc", "licenses", "tmp", "usr"], "{top:?}");
    for program in std::fs::read_dir(root.join("usr/local/bin"))? {
        let path = program?.path();
        let program = std::fs::read(&path)?;
        ensure!(program.starts_with(b"\x7fELF"), "{} is no program", path.display());
        ensure!(!has_interpreter(&program)?, "{} is linked dynamically", path.display());
    }
    let authorities = std::fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt"))?;
    ensure!(authorities.matches("BEGIN CERTIFICATE").count() > 50, "there are few authorities");
    Ok(())
}

/// Whether an ELF file of 64 bits names a dynamic linker (a program header PT_INTERP).
fn has_interpreter(elf: &[u8]) -> Result<bool> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, length: usize| -> Result<u64> {
        let bytes = elf.get(at..at + length).context("the file is cut off")?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    ensure!(count > 0, "there are no program headers");
    for header in 0..count {
        if number(usize::try_from(start + header * size)?, 4)? == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A layer with one other byte is refused.
async fn harm(layout: &Path) -> Result<()> {
    let mut archive = Archive::in_directory(layout)?;
    let mut largest = (0, PathBuf::new());
    for entry in std::fs::read_dir(layout.join("blobs/sha256"))? {
        let entry = entry?;
        largest = largest.max((entry.metadata()?.len(), entry.path()));
    }
    let mut bytes = std::fs::read(&largest.1)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&largest.1, bytes)?;
    let mut failures = Vec::new();
    for architecture in archive.architectures()? {
        failures.extend(archive.unpack_for(&architecture, &layout.join(&architecture)).await.err());
    }
    ensure!(failures.len() == 1, "{} images are refused", failures.len());
    let said = failures[0].to_string();
    ensure!(said.contains("has digest"), "{said}");
    Ok(())
}

#[test]
#[ignore = "needs make image; in make soak"]
fn quick_start_runs_with_the_images() {
    run(async |env| {
        let world = World::start_with(env, 3, &ImageSource::Archives(archives()?)).await?;
        world.apply_gardener_kinds().await?;
        let class = "--set=storage.embedded.storageClassName=standard";
        world.deploy("install", "repot-garden", &[class]).await?;
        world.until_available(API).await?;
        let said = world.helm(&["test", "repot-garden", "--timeout=60s"]).await?;
        ensure!(said.contains("Phase:          Succeeded"), "{said}");
        let stored = world.store_example().await?;
        ensure!(stored.contains("big"), "{stored}");
        let restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
        let restarts = world.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", restarts]).await?;
        ensure!(
            restarts.split_whitespace().all(|count| count == "0"),
            "containers were restarted: {restarts}"
        );
        Ok(())
    });
}

#[test]
#[ignore = "needs make image; in make soak"]
fn seed_has_an_etcd_of_the_images() {
    run(async |env| seed::install(env, &ImageSource::Archives(archives()?)).await);
}
