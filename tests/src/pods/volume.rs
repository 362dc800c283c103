//! Volumes of a pod as directories: kept ones of claims, and those that are filled from the API.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, PersistentVolume, PersistentVolumeClaim, Secret,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kube::{Api, Client};
use serde_json::json;

use super::environment::{Data, Facts, field_value};
use crate::http;

/// What volumes are made from.
pub(super) struct Supply<'a> {
    pub client: &'a Client,
    pub api: &'a http::Api,
    pub facts: &'a Facts<'a>,
}

/// Files by their path in the volume.
type Files = BTreeMap<String, Vec<u8>>;

const DEFAULT_MODE: i32 = 0o644;
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
        if let Some(claim) = &volume.persistent_volume_claim {
            return self.claimed(&claim.claim_name).await;
        }
        if volume.ephemeral.is_some() {
            let pod = self.facts.pod.metadata.name.as_deref().unwrap_or_default();
            return self.claimed(&format!("{pod}-{}", volume.name)).await;
        }
        if let Some(host) = &volume.host_path {
            return Ok(PathBuf::from(&host.path));
        }
        fs::create_dir_all(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?;
        if volume.empty_dir.is_none() {
            let (files, mode) = self.files(volume).await?;
            write(dir, &files, mode.unwrap_or(DEFAULT_MODE))?;
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
        Ok(Files::from([(token.path.clone(), self.token(token).await?.into_bytes())]))
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
            files.insert(item.path.clone(), field_value(&field.field_path, self.facts)?.into_bytes());
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
    let Some(items) = items else { return Ok(data) };
    let mut files = Files::new();
    for item in items {
        let Some(value) = data.remove(&item.key) else { bail!("key {} is not there", item.key) };
        files.insert(item.path.clone(), value);
    }
    Ok(files)
}

/// Makes the files of a directory these: each is changed at once or not at all, and one that stays is not touched.
fn write(dir: &Path, files: &Files, mode: i32) -> Result<()> {
    for path in list(dir)? {
        if !files.keys().any(|name| dir.join(name) == path) {
            fs::remove_file(&path)?;
        }
    }
    for (name, content) in files {
        let path = dir.join(name);
        if fs::read(&path).is_ok_and(|found| found == *content) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        let new = path.with_extension("testbed-new");
        fs::write(&new, content)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(u32::try_from(mode)?))?;
        fs::rename(&new, &path)?;
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

    #[test]
    fn directory_becomes_what_the_files_are_and_untouched_ones_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = |pairs: &[(&str, &str)]| -> Files {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
        };
        write(dir.path(), &files(&[("a", "1"), ("b/c", "2"), ("d", "3")]), 0o640).expect("writes");
        let inode = |name: &str| {
            use std::os::unix::fs::MetadataExt;
            let metadata = fs::metadata(dir.path().join(name)).expect("a file");
            (metadata.ino(), metadata.mode() & 0o777)
        };
        let before = [inode("a"), inode("b/c")];
        write(dir.path(), &files(&[("a", "1"), ("b/c", "4")]), 0o640).expect("writes");
        assert_eq!(inode("a"), before[0]);
        assert_ne!(inode("b/c"), before[1]);
        assert_eq!(before[0].1, 0o640);
        assert_eq!(fs::read(dir.path().join("b/c")).expect("a file"), b"4");
        assert!(!dir.path().join("d").exists());
    }
}
