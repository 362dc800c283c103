//! Credentials in the files of etcd-backup-restore and Gardener: a directory with a file for each key, as a Secret is mounted, or
//! one file of JSON.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use object_store::{CredentialProvider, aws::AwsCredential};

use super::{Environment, Error, Result};

/// Kinds of stores that have credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    S3,
    Azure,
    Gcs,
}

/// Where credentials rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CredentialsSource {
    /// A file for each key.
    Directory(PathBuf),
    /// A JSON object.
    File(PathBuf),
}

impl CredentialsSource {
    /// Where the variables of etcd-backup-restore say.
    pub(super) fn of(kind: Kind, environment: &Environment) -> Option<Self> {
        let name = match kind {
            Kind::S3 => "AWS_APPLICATION_CREDENTIALS",
            Kind::Azure => "AZURE_APPLICATION_CREDENTIALS",
            // Google's own variable of this kind names a file that its library reads.
            Kind::Gcs => return None,
        };
        let directory = environment.get(name).map(|path| Self::Directory(path.into()));
        directory.or_else(|| environment.get(&format!("{name}_JSON")).map(|path| Self::File(path.into())))
    }

    pub(super) fn path(&self) -> &Path {
        let (Self::Directory(path) | Self::File(path)) = self;
        path
    }

    /// All keys and values.
    pub(super) fn read(&self) -> Result<BTreeMap<String, String>> {
        let found = match self {
            Self::Directory(path) => read_directory(path),
            Self::File(path) => fs::read(path).and_then(|text| Ok(serde_json::from_slice(&text)?)),
        };
        let found = found.map_err(|source| Error::Credentials { path: self.path().to_owned(), source })?;
        Ok(found.into_iter().map(|(key, value)| (key, value.trim().to_owned())).collect())
    }
}

/// A mounted Secret is changed by turning the link `..data`, so one look at it is one version of all keys.
fn read_directory(path: &Path) -> io::Result<BTreeMap<String, String>> {
    let version = path.join("..data");
    let path = if version.exists() { fs::canonicalize(version)? } else { path.to_owned() };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(key) = entry.file_name().into_string() else { continue };
        if !key.starts_with('.') && entry.path().is_file() {
            // What is no text is no key of ours.
            let text = String::from_utf8(fs::read(entry.path())?);
            found.extend(text.map(|text| (key, text)));
        }
    }
    Ok(found)
}

/// Adds what credentials say to the variables, in place of what is there.
pub(super) fn add(kind: Kind, place: &CredentialsSource, environment: &mut Environment) -> Result<()> {
    let found = place.read()?;
    let mut set = |name: &str, value: String| drop(environment.insert(name.to_owned(), value));
    let path_of = |key: &str| place.path().join(key).display().to_string();
    for (key, value) in &found {
        match (kind, key.as_str()) {
            (Kind::S3, "accessKeyID") => set("AWS_ACCESS_KEY_ID", value.clone()),
            (Kind::S3, "secretAccessKey") => set("AWS_SECRET_ACCESS_KEY", value.clone()),
            (Kind::S3, "sessionToken") => set("AWS_SESSION_TOKEN", value.clone()),
            (Kind::S3, "region") => set("AWS_REGION", value.clone()),
            (Kind::S3, "roleARN") => set("AWS_ROLE_ARN", value.clone()),
            (Kind::S3, "tokenPath") => set("AWS_WEB_IDENTITY_TOKEN_FILE", value.clone()),
            (Kind::S3, "endpoint") => set_endpoint("AWS", value, &mut set),
            (Kind::S3, "s3ForcePathStyle") => {
                set("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", (!is_true(value)).to_string());
            }
            (Kind::S3, "insecureSkipVerify") => {
                set("AWS_ALLOW_INVALID_CERTIFICATES", is_true(value).to_string())
            }
            (Kind::S3, "trustedCaCert") => set("AWS_CA_BUNDLE", path_of(key)),
            (Kind::S3, "sseCustomerKey") => {
                set("AWS_SERVER_SIDE_ENCRYPTION", "sse-c".to_owned());
                set("AWS_SSE_CUSTOMER_KEY_BASE64", STANDARD.encode(value));
            }
            (Kind::Azure, "storageAccount") => set("AZURE_STORAGE_ACCOUNT_NAME", value.clone()),
            (Kind::Azure, "storageKey") => set("AZURE_STORAGE_ACCOUNT_KEY", value.clone()),
            (Kind::Azure, "domain") => {
                let account = found.get("storageAccount").map_or("", String::as_str);
                set("AZURE_STORAGE_ENDPOINT", format!("https://{account}.{value}"));
            }
            (Kind::Gcs, "serviceaccount.json") => set("GOOGLE_SERVICE_ACCOUNT", path_of(key)),
            (Kind::Gcs, "credentialsConfig") => set("GOOGLE_APPLICATION_CREDENTIALS", path_of(key)),
            (Kind::Gcs, "storageAPIEndpoint") => set_endpoint("GOOGLE", value, &mut set),
            // Such as the name of the bucket, which the URL says.
            (Kind::S3 | Kind::Azure | Kind::Gcs, _) => {}
        }
    }
    Ok(())
}

/// Says where the API of a store is; plain HTTP is for those who write it.
pub(super) fn set_endpoint(family: &str, url: &str, set: &mut impl FnMut(&str, String)) {
    let name = match family {
        "AZURE" => "AZURE_STORAGE_ENDPOINT",
        "GOOGLE" => "GOOGLE_BASE_URL",
        _ => "AWS_ENDPOINT",
    };
    set(name, url.to_owned());
    if url.starts_with("http://") {
        set(&format!("{family}_ALLOW_HTTP"), "true".to_owned());
    }
}

fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "true" | "1" | "t")
}

/// Keys of S3 as they are in the files at each request, so that they may change while a store is open.
#[derive(Debug)]
pub(super) struct Followed(CredentialsSource);

impl Followed {
    /// Follows credentials that have a fixed key; there is nothing to follow in others.
    pub(super) fn new(place: &CredentialsSource) -> Result<Option<Self>> {
        let found = place.read()?;
        let fixed = found.contains_key("accessKeyID") && found.contains_key("secretAccessKey");
        Ok(fixed.then(|| Self(place.clone())))
    }
}

#[async_trait]
impl CredentialProvider for Followed {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let wrong = |source| object_store::Error::Generic { store: "credentials", source };
        let place = self.0.clone();
        let read = tokio::task::spawn_blocking(move || place.read()).await;
        let mut found = read
            .map_err(|source| object_store::Error::JoinError { source })?
            .map_err(|error| wrong(error.into()))?;
        let mut take = |key: &str| found.remove(key).filter(|value| !value.is_empty());
        match (take("accessKeyID"), take("secretAccessKey"), take("sessionToken")) {
            (Some(key_id), Some(secret_key), token) => {
                Ok(Arc::new(AwsCredential { key_id, secret_key, token }))
            }
            _ => Err(wrong("accessKeyID or secretAccessKey is no longer there".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(keys: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let version = dir.path().join("..2026_11_21");
        fs::create_dir(&version).expect("a version");
        for (key, value) in keys {
            fs::write(version.join(key), value).expect("a key");
        }
        std::os::unix::fs::symlink("..2026_11_21", dir.path().join("..data")).expect("a link");
        for (key, _) in keys {
            std::os::unix::fs::symlink(Path::new("..data").join(key), dir.path().join(key)).expect("a link");
        }
        dir
    }

    #[test]
    fn a_mounted_secret_of_s3_is_read() {
        let dir = mounted(&[
            ("accessKeyID", "id\n"),
            ("secretAccessKey", "hush"),
            ("endpoint", "http://store:9000"),
            ("s3ForcePathStyle", "false"),
            ("trustedCaCert", "PEM"),
            ("bucketName", "another"),
        ]);
        let mut all = Environment::from([("AWS_REGION".to_owned(), "here".to_owned())]);
        let place = CredentialsSource::Directory(dir.path().to_owned());
        add(Kind::S3, &place, &mut all).expect("credentials");
        let said = |name: &str| all.get(name).map_or("", String::as_str);
        assert_eq!((said("AWS_ACCESS_KEY_ID"), said("AWS_SECRET_ACCESS_KEY")), ("id", "hush"));
        assert_eq!((said("AWS_ENDPOINT"), said("AWS_ALLOW_HTTP")), ("http://store:9000", "true"));
        assert_eq!((said("AWS_VIRTUAL_HOSTED_STYLE_REQUEST"), said("AWS_REGION")), ("true", "here"));
        assert_eq!(fs::read_to_string(said("AWS_CA_BUNDLE")).expect("a file"), "PEM");
        assert!(Followed::new(&place).expect("credentials").is_some());
    }

    #[test]
    fn those_of_azure_and_of_json_are_read() {
        let dir = mounted(&[("storageAccount", "a"), ("storageKey", "aHVzaA=="), ("domain", "blob.example")]);
        let mut all = Environment::new();
        let named = [("AZURE_APPLICATION_CREDENTIALS".to_owned(), dir.path().display().to_string())];
        let place = CredentialsSource::of(Kind::Azure, &Environment::from(named)).expect("a place");
        add(Kind::Azure, &place, &mut all).expect("credentials");
        assert_eq!(all["AZURE_STORAGE_ENDPOINT"], "https://a.blob.example");
        let file = dir.path().join("keys.json");
        fs::write(&file, r#"{"accessKeyID": "id", "secretAccessKey": "hush"}"#).expect("a file");
        let place = CredentialsSource::File(file.clone());
        add(Kind::S3, &place, &mut all).expect("credentials");
        assert_eq!(all["AWS_SECRET_ACCESS_KEY"], "hush");
        fs::write(&file, "{hush").expect("a file");
        let error = place.read().expect_err("no JSON");
        assert!(
            error.to_string().contains("keys.json") && !format!("{error:?}").contains("hush"),
            "{error:?}"
        );
    }
}
