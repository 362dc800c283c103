//! Container images of Repot as root directories: from the archives of `make image`, or around programs that are not packed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::digest::{Context as Hash, SHA256};
use flate2::read::GzDecoder;
use serde_json::Value;
use tokio::process::Command;

use crate::pods::{Image, ImageConfig};
use crate::tool;

/// What is copied into all images of Repot.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/image");
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An OCI archive whose files are in a directory.
pub struct Archive {
    dir: PathBuf,
    /// All blobs that were read, by their digests.
    pub verified: Vec<String>,
}

impl Archive {
    /// Unpacks `archive` into the new directory `dir`.
    pub async fn open(archive: &Path, dir: PathBuf) -> Result<Self> {
        fs::create_dir(&dir)?;
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--file"]).arg(archive).arg("--directory").arg(&dir);
        tool::run(tar, b"").await?.text()?;
        Self::in_directory(&dir)
    }

    /// An archive that is unpacked already.
    pub fn in_directory(dir: &Path) -> Result<Self> {
        let layout: Value = serde_json::from_slice(&fs::read(dir.join("oci-layout"))?)?;
        ensure!(layout["imageLayoutVersion"] == "1.0.0", "{layout}");
        Ok(Self { dir: dir.to_owned(), verified: Vec::new() })
    }

    /// Digest of the index of platforms: what a registry knows the image by.
    pub fn digest(&self) -> Result<String> {
        let index: Value = serde_json::from_slice(&fs::read(self.dir.join("index.json"))?)?;
        text(&index["manifests"][0]["digest"])
    }

    /// Architectures that it has images for.
    pub fn architectures(&mut self) -> Result<Vec<String>> {
        self.platforms()?.iter().map(|found| text(&found["platform"]["architecture"])).collect()
    }

    /// Unpacks the image for this machine into the new directory `root`.
    ///
    /// Errors: as [`Archive::unpack_for`].
    pub async fn unpack(&mut self, root: &Path) -> Result<Image> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        self.unpack_for(architecture, root).await
    }

    /// Unpacks the image for an architecture into the new directory `root`.
    ///
    /// Errors: when a blob has not the digest or the size by which it is named, or a layer removes files.
    pub async fn unpack_for(&mut self, architecture: &str, root: &Path) -> Result<Image> {
        let platforms = self.platforms()?;
        let found = platforms.iter().find(|found| found["platform"]["architecture"] == architecture);
        let manifest = self.json(found.with_context(|| format!("no image for {architecture}"))?)?;
        let config = self.json(&manifest["config"])?;
        let layers = manifest["layers"].as_array().context("no layers")?;
        let contents = config["rootfs"]["diff_ids"].as_array().context("no diff_ids")?;
        ensure!(layers.len() == contents.len(), "{} layers have {} digests", layers.len(), contents.len());
        fs::create_dir(root)?;
        for (layer, content) in layers.iter().zip(contents) {
            ensure!(layer["mediaType"] == LAYER, "{layer}");
            let path = self.blob(layer)?;
            ensure!(
                text(content)? == sha256(GzDecoder::new(File::open(&path)?))?,
                "{layer} is not {content}"
            );
            unpack_layer(&path, root).await?;
        }
        Ok(Image::of_root(root, image_config(&config["config"])?))
    }

    fn platforms(&mut self) -> Result<Vec<Value>> {
        let top: Value = serde_json::from_slice(&fs::read(self.dir.join("index.json"))?)?;
        let index = &top["manifests"][0];
        ensure!(index["mediaType"] == INDEX, "{top}");
        let index = self.json(index)?;
        Ok(index["manifests"].as_array().context("no manifests")?.clone())
    }

    fn json(&mut self, descriptor: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(self.blob(descriptor)?)?)?)
    }

    /// The file that a descriptor names, once it is verified.
    fn blob(&mut self, descriptor: &Value) -> Result<PathBuf> {
        let digest = text(&descriptor["digest"])?;
        let name = digest.strip_prefix("sha256:").with_context(|| format!("{digest} is no SHA-256"))?;
        let path = self.dir.join("blobs/sha256").join(name);
        let size = fs::metadata(&path).with_context(|| format!("no blob {digest}"))?.len();
        ensure!(descriptor["size"] == size, "{descriptor} has {size} bytes");
        let found = sha256(File::open(&path)?)?;
        ensure!(found == digest, "{descriptor} has digest {found}");
        self.verified.push(digest);
        Ok(path)
    }
}

/// An image of Repot around programs of this machine, the first of which is its entrypoint. `root` is a new directory.
///
/// What `make image` copies into images is there, and their configuration is that of the Containerfile. Programs of tests are linked
/// dynamically: the libraries that they need are there, too, and nothing else.
pub async fn around(programs: &[PathBuf], root: &Path) -> Result<Image> {
    let etc = root.join("etc");
    fs::create_dir_all(etc.join("ssl/certs"))?;
    for entry in fs::read_dir(Path::new(FILES).join("root/etc"))? {
        let entry = entry?;
        fs::copy(entry.path(), etc.join(entry.file_name()))?;
    }
    fs::copy(AUTHORITIES, root.join(AUTHORITIES.trim_start_matches('/')))
        .with_context(|| format!("{AUTHORITIES} is missing: install ca-certificates"))?;
    let tmp = root.join("tmp");
    fs::create_dir(&tmp)?;
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777))?;
    let config = containerfile_config(&fs::read_to_string(Path::new(FILES).join("Containerfile"))?)?;
    let mut image = Image::of_root(root, config);
    for program in programs {
        let name = program.file_name().context("a program has no name")?;
        image = image.with_file(program, Path::new("/usr/local/bin").join(name));
        for library in libraries(program).await? {
            image = image.with_file(&library, &library);
        }
    }
    Ok(image)
}

/// The dynamic linker and the libraries of a program; none when it is linked statically.
async fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let mut ldd = Command::new("ldd");
    ldd.arg(program).env("LC_ALL", "C");
    let said = tool::run(ldd, b"").await?;
    if !said.succeeded() && said.stderr.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    let said = said.text()?;
    Ok(said.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

async fn unpack_layer(layer: &Path, root: &Path) -> Result<()> {
    let mut list = Command::new("tar");
    list.args(["--list", "--gzip", "--file"]).arg(layer);
    let names = tool::run(list, b"").await?.text()?;
    let removed = names.lines().find(|name| name.rsplit('/').next().is_some_and(|n| n.starts_with(".wh.")));
    ensure!(removed.is_none(), "a layer removes {}", removed.unwrap_or_default());
    let mut extract = Command::new("tar");
    extract.args(["--extract", "--gzip", "--same-owner", "--same-permissions", "--numeric-owner", "--file"]);
    extract.arg(layer).arg("--directory").arg(root);
    tool::run(extract, b"").await?.text().map(drop)
}

/// The configuration of an image as its registry has it.
fn image_config(config: &Value) -> Result<ImageConfig> {
    let words =
        |field: &Value| -> Result<Vec<String>> { field.as_array().into_iter().flatten().map(text).collect() };
    let env = words(&config["Env"])?;
    Ok(ImageConfig {
        entrypoint: words(&config["Entrypoint"])?,
        user: user(&text(&config["User"])?)?,
        env: variables(&env),
    })
}

/// The configuration that a Containerfile gives to all of its images.
fn containerfile_config(file: &str) -> Result<ImageConfig> {
    let mut config = ImageConfig::default();
    for line in file.lines() {
        match line.split_once(' ') {
            Some(("ENV", rest)) => config.env.extend(variables(rest.split_whitespace())),
            Some(("USER", rest)) => config.user = user(rest)?,
            Some(("ENTRYPOINT", rest)) => config.entrypoint = serde_json::from_str(rest)?,
            _ => {}
        }
    }
    ensure!(!config.entrypoint.is_empty(), "the Containerfile has no entrypoint");
    Ok(config)
}

fn variables(words: impl IntoIterator<Item = impl AsRef<str>>) -> BTreeMap<String, String> {
    let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    words.into_iter().filter_map(|word| pair(word.as_ref())).collect()
}

fn user(text: &str) -> Result<(u32, u32)> {
    let Some((user, group)) = text.split_once(':') else { bail!("{text:?} is no user and group") };
    Ok((user.parse()?, group.parse()?))
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("{value} is no text"))?.to_owned())
}

fn sha256(mut from: impl Read) -> Result<String> {
    let mut hash = Hash::new(&SHA256);
    let mut part = vec![0; 1 << 16];
    loop {
        match from.read(&mut part) {
            Ok(0) => break,
            Ok(length) => hash.update(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let hex: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerfile_says_what_an_image_runs() {
        let file = "FROM scratch AS base\nENV PATH=/usr/local/bin A=1\nUSER 7:8\nENTRYPOINT [\"/usr/local/bin/repot\"]\n";
        let config = containerfile_config(file).expect("a configuration");
        assert_eq!((config.user, config.entrypoint), ((7, 8), vec!["/usr/local/bin/repot".to_owned()]));
        assert_eq!(config.env.get("A").map(String::as_str), Some("1"));
        containerfile_config("FROM scratch").expect_err("no entrypoint");
        containerfile_config("USER repot").expect_err("no number");
    }

    #[test]
    fn digest_is_that_of_the_bytes() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(&b""[..]).expect("bytes"), empty);
    }
}
