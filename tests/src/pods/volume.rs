//! Volumes of a pod as directories: kept ones of claims, and those that are filled from the API.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, PersistentVolume, PersistentVolumeClaim, Secret,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kube::{Api, Client};
use serde_json::json;

use super::environment::{Data, Facts, field_value};
use super::security::VolumeOwner;
use super::wire::Wire;
use crate::http;

/// What volumes are made from.
pub(super) struct Supply<'a> {
    pub client: &'a Client,
    pub api: &'a http::Api,
    pub wire: &'a Wire,
    pub facts: &'a Facts<'a>,
    pub owner: VolumeOwner,
}

/// Files by their path in the volume.
type Files = BTreeMap<String, VolumeFile>;

/// A file of a volume, with its mode and its user where they are not those of the volume.
#[derive(Clone, Debug, Default)]
struct VolumeFile {
    content: Vec<u8>,
    mode: Option<i32>,
    user: Option<u32>,
}

const DEFAULT_MODE: i32 = 0o644;
/// What only its owner may read.
const PRIVATE: i32 = 0o600;
/// What a group may do with a volume: directories are entered, and what is made in them gets their group.
const GROUP_DIR: u32 = 0o2770;
const GROUP_FILE: u32 = 0o660;
/// The same where the kubelet alone writes.
const GROUP_READS: i32 = 0o440;
const TOKEN_SECONDS: i64 = 3600;

/// What a ConfigMap holds; `None` when there is none.
pub(super) async fn config_map(client: &Client, namespace: &str, name: &str) -> Result<Option<Data>> {
    let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await?;
    Ok(found.map(|map| {
        let text = map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
        text.chain(map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0))).collect()
    }))
}

/// What a Secret holds; `None` when there is none.
pub(super) async fn secret(client: &Client, namespace: &str, name: &str) -> Result<Option<Data>> {
    let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await?;
    Ok(found.map(|secret| secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect()))
}

impl Supply<'_> {
    /// Brings a volume to what the API says and gives its directory: `dir`, unless it lies elsewhere.
    ///
    /// Errors: when something that it needs is not there yet, or its type is not supported.
    pub(super) async fn bring(&self, volume: &Volume, dir: &Path) -> Result<PathBuf> {
        let pod = self.facts.pod.metadata.name.as_deref().unwrap_or_default();
        let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
        if let Some(claim) = claim.or(volume.ephemeral.as_ref().map(|_| format!("{pod}-{}", volume.name))) {
            let path = self.claimed(&claim).await?;
            if let Some(group) = self.owner.group {
                give_to_group(&self.wire.seen_from_here(&path), group, self.owner.on_root_mismatch)
                    .with_context(|| format!("failed to apply fsGroup to claim {claim}"))?;
            }
            return Ok(path);
        }
        if let Some(host) = &volume.host_path {
            return Ok(PathBuf::from(&host.path));
        }
        fs::create_dir_all(dir)?;
        chown(dir, None, self.owner.group)?;
        let set_group = if self.owner.group.is_some() { GROUP_DIR } else { 0 };
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777 | set_group))?;
        if volume.empty_dir.is_none() {
            let (files, mode) = self.files(volume).await?;
            write(dir, &files, mode.unwrap_or(DEFAULT_MODE), self.owner.group)?;
        }
        Ok(dir.to_owned())
    }

    async fn claimed(&self, claim: &str) -> Result<PathBuf> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), self.namespace());
        let found = claims.get_opt(claim).await?.with_context(|| format!("claim {claim} is not there"))?;
        let phase = found.status.and_then(|status| status.phase).unwrap_or_default();
        let volume = found.spec.and_then(|spec| spec.volume_name).filter(|_| phase == "Bound");
        let volume = volume.with_context(|| format!("claim {claim} is not bound"))?;
        let found = Api::<PersistentVolume>::all(self.client.clone()).get(&volume).await?;
        let spec = found.spec.unwrap_or_default();
        let path = spec.host_path.map(|host| host.path).or(spec.local.map(|local| local.path));
        path.map(PathBuf::from).with_context(|| format!("volume {volume} is neither hostPath nor local"))
    }

    async fn files(&self, volume: &Volume) -> Result<(Files, Option<i32>)> {
        if let Some(source) = &volume.config_map {
            let data = self.config_map(&source.name, source.optional).await?;
            return Ok((chosen(data, source.items.as_deref())?, source.default_mode));
        }
        if let Some(source) = &volume.secret {
            let data =
                self.secret(source.secret_name.as_deref().unwrap_or_default(), source.optional).await?;
            return Ok((chosen(data, source.items.as_deref())?, source.default_mode));
        }
        if let Some(source) = &volume.downward_api {
            return Ok((self.fields(source.items.as_deref())?, source.default_mode));
        }
        let projected = volume.projected.as_ref();
        let projected =
            projected.with_context(|| format!("the type of volume {} is not supported", volume.name))?;
        let mut files = Files::new();
        for source in projected.sources.iter().flatten() {
            files.extend(self.projection(source).await?);
        }
        Ok((files, projected.default_mode))
    }

    async fn projection(&self, source: &VolumeProjection) -> Result<Files> {
        if let Some(map) = &source.config_map {
            return chosen(self.config_map(&map.name, map.optional).await?, map.items.as_deref());
        }
        if let Some(secret) = &source.secret {
            return chosen(self.secret(&secret.name, secret.optional).await?, secret.items.as_deref());
        }
        if let Some(fields) = &source.downward_api {
            return self.fields(fields.items.as_deref());
        }
        let token = source.service_account_token.as_ref().context("a projection is not supported")?;
        let content = self.token(token).await?.into_bytes();
        // A kubelet keeps a token from others when it knows who is to read it.
        let VolumeOwner { user, group, .. } = self.owner;
        let mode = (user.is_some() || group.is_some()).then_some(PRIVATE);
        Ok(Files::from([(token.path.clone(), VolumeFile { content, mode, user })]))
    }

    /// A token of the pod's service account, bound to the pod.
    async fn token(&self, wanted: &ServiceAccountTokenProjection) -> Result<String> {
        let (pod, spec) = (&self.facts.pod.metadata, self.facts.pod.spec.as_ref());
        let account = spec.and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", self.namespace());
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": wanted.audience.iter().collect::<Vec<_>>(),
                "expirationSeconds": wanted.expiration_seconds.unwrap_or(TOKEN_SECONDS),
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
            },
        });
        let answer = self.api.post(&path, &request).await?.ok()?;
        Ok(answer["status"]["token"].as_str().context("kube-apiserver gave no token")?.to_owned())
    }

    fn fields(&self, items: Option<&[DownwardAPIVolumeFile]>) -> Result<Files> {
        let mut files = Files::new();
        for item in items.into_iter().flatten() {
            let field = item.field_ref.as_ref().context("resourceFieldRef is not supported")?;
            let content = field_value(&field.field_path, self.facts)?.into_bytes();
            files.insert(item.path.clone(), VolumeFile { content, mode: item.mode, user: None });
        }
        Ok(files)
    }

    async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<Data> {
        let data = config_map(self.client, self.namespace(), name).await?;
        present(data, optional).with_context(|| format!("configmap \"{name}\" not found"))
    }

    async fn secret(&self, name: &str, optional: Option<bool>) -> Result<Data> {
        let data = secret(self.client, self.namespace(), name).await?;
        present(data, optional).with_context(|| format!("secret \"{name}\" not found"))
    }

    fn namespace(&self) -> &str {
        self.facts.pod.metadata.namespace.as_deref().unwrap_or_default()
    }
}

fn present(data: Option<Data>, optional: Option<bool>) -> Option<Data> {
    data.or_else(|| (optional == Some(true)).then(Data::new))
}

/// All keys, or those that are listed, under the paths that are listed.
fn chosen(mut data: Data, items: Option<&[KeyToPath]>) -> Result<Files> {
    let file = |content, mode| VolumeFile { content, mode, user: None };
    let Some(items) = items else {
        return Ok(data.into_iter().map(|(key, content)| (key, file(content, None))).collect());
    };
    let mut files = Files::new();
    for item in items {
        let Some(value) = data.remove(&item.key) else { bail!("key {} is not there", item.key) };
        files.insert(item.path.clone(), file(value, item.mode));
    }
    Ok(files)
}

/// Makes the files of a directory these: each is changed at once or not at all, and one that stays is not touched.
fn write(dir: &Path, files: &Files, mode: i32, group: Option<u32>) -> Result<()> {
    for path in list(dir)? {
        if !files.keys().any(|name| dir.join(name) == path) {
            fs::remove_file(&path)?;
        }
    }
    for (name, file) in files {
        let path = dir.join(name);
        if fs::read(&path).is_ok_and(|found| found == file.content) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        let new = path.with_extension("testbed-new");
        fs::write(&new, &file.content)?;
        chown(&new, file.user, group)?;
        let mode = file.mode.unwrap_or(mode) | if group.is_some() { GROUP_READS } else { 0 };
        fs::set_permissions(&new, fs::Permissions::from_mode(u32::try_from(mode)?))?;
        fs::rename(&new, &path)?;
    }
    Ok(())
}

/// Lets a group use all that is in a volume; its root directory comes last, since that says that it is done.
fn give_to_group(path: &Path, group: u32, on_root_mismatch: bool) -> Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if on_root_mismatch && metadata.gid() == group && metadata.mode() & GROUP_DIR == GROUP_DIR {
        return Ok(());
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            give_to_group(&entry?.path(), group, false)?;
        }
    }
    lchown(path, None, Some(group))?;
    if !metadata.is_symlink() {
        let more = if metadata.is_dir() { GROUP_DIR } else { GROUP_FILE };
        fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode() | more))?;
    }
    Ok(())
}

fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(list(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> Files {
        let file = |text: &str| VolumeFile { content: text.as_bytes().to_vec(), ..VolumeFile::default() };
        pairs.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect()
    }

    #[test]
    fn directory_becomes_what_the_files_are_and_untouched_ones_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), &files(&[("a", "1"), ("b/c", "2"), ("d", "3")]), 0o640, None).expect("writes");
        let inode = |name: &str| {
            let metadata = fs::metadata(dir.path().join(name)).expect("a file");
            (metadata.ino(), metadata.mode() & 0o777)
        };
        let before = [inode("a"), inode("b/c")];
        write(dir.path(), &files(&[("a", "1"), ("b/c", "4")]), 0o640, None).expect("writes");
        assert_eq!(inode("a"), before[0]);
        assert_ne!(inode("b/c"), before[1]);
        assert_eq!(before[0].1, 0o640);
        assert_eq!(fs::read(dir.path().join("b/c")).expect("a file"), b"4");
        assert!(!dir.path().join("d").exists());
    }

    /// Whoever runs tests may give files to their own group only, so that is the group here.
    #[test]
    fn group_of_a_pod_may_use_a_volume() {
        let dir = tempfile::tempdir().expect("a directory");
        let group = fs::metadata(dir.path()).expect("a directory").gid();
        let mode = |name: &str| fs::metadata(dir.path().join(name)).expect("a file").mode() & 0o7777;
        write(dir.path(), &files(&[("secret", "1")]), 0o400, Some(group)).expect("writes");
        assert_eq!(mode("secret"), 0o440);
        fs::create_dir(dir.path().join("member")).expect("a directory");
        fs::set_permissions(dir.path().join("member"), fs::Permissions::from_mode(0o700)).expect("a mode");
        give_to_group(dir.path(), group, true).expect("given");
        assert_eq!((mode("member"), mode("secret")), (0o2770, 0o660));
        fs::set_permissions(dir.path().join("member"), fs::Permissions::from_mode(0o700)).expect("a mode");
        give_to_group(dir.path(), group, true).expect("nothing to do");
        assert_eq!(mode("member"), 0o700);
        give_to_group(dir.path(), group, false).expect("given");
        assert_eq!(mode("member"), 0o2770);
    }
}
