//! From a URL and environment variables to a store.

use std::{path::PathBuf, sync::Arc};

use object_store::{
    ObjectStore, aws::AmazonS3Builder, azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder,
    local::LocalFileSystem, path::Path,
};
use url::Url;

use super::{Environment, Error, Result, Store};

impl Store {
    /// Opens a store. Nothing is asked of it yet, and nothing has to be there.
    ///
    /// | URL | variables |
    /// |---|---|
    /// | `file:///directory` | none |
    /// | `s3://bucket/prefix` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, `AWS_WEB_IDENTITY_TOKEN_FILE`, … |
    /// | `gs://bucket/prefix` | `GOOGLE_SERVICE_ACCOUNT` (a file), `GOOGLE_SERVICE_ACCOUNT_KEY`, `GOOGLE_APPLICATION_CREDENTIALS`, … |
    /// | `az://container/prefix`, `azblob://…` | `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, `AZURE_CLIENT_ID`, … |
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::Open`].
    pub fn open(url: &str, environment: &Environment) -> Result<Self> {
        let refuse = |why: &str| Error::Url { url: without_secrets(url), why: why.to_owned() };
        let parsed = Url::parse(url).map_err(|error| refuse(&error.to_string()))?;
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err(refuse("credentials belong into environment variables"));
        }
        if parsed.scheme() == "file" {
            return Self::directory(&parsed).ok_or_else(|| refuse("it names no directory of this machine"));
        }
        let container = parsed.host_str().filter(|host| !host.is_empty());
        let container = container.ok_or_else(|| refuse("it names no bucket"))?;
        let prefix = Path::from_url_path(parsed.path()).map_err(|error| refuse(&error.to_string()))?;
        let opened = match parsed.scheme() {
            "s3" | "s3a" => open_s3(container, environment),
            "gs" | "gcs" => open_gcs(container, environment),
            "az" | "azblob" | "azure" | "abs" => open_azure(container, environment),
            _ => return Err(refuse("it begins with none of file:, s3:, gs:, az: and azblob:")),
        };
        let objects = opened.map_err(|source| Error::Open { url: url.to_owned(), source })?;
        Ok(Self { objects, prefix, directory: None, url: url.to_owned() })
    }

    fn directory(url: &Url) -> Option<Self> {
        let directory: PathBuf = url.to_file_path().ok()?;
        let prefix = Path::from_absolute_path(&directory).ok()?;
        let objects = Arc::new(LocalFileSystem::new());
        Some(Self { objects, prefix, directory: Some(directory), url: url.to_string() })
    }
}

/// A URL as it may be printed.
fn without_secrets(url: &str) -> String {
    let end = url.find('?').unwrap_or(url.len());
    match (url.find("://"), url[..end].rfind('@')) {
        (Some(start), Some(at)) if at > start => format!("{}…{}", &url[..start + 3], &url[at..end]),
        _ => url[..end].to_owned(),
    }
}

type Opened = Result<Arc<dyn ObjectStore>, object_store::Error>;

/// Variables of a family, in the lower case in which their meaning is known.
fn family<'a>(environment: &'a Environment, start: &'a str) -> impl Iterator<Item = (String, &'a String)> {
    let of_family = environment.iter().filter(move |(name, _)| name.starts_with(start));
    of_family.map(|(name, value)| (name.to_ascii_lowercase(), value))
}

fn open_s3(bucket: &str, environment: &Environment) -> Opened {
    let known = family(environment, "AWS_").filter_map(|(name, value)| Some((name.parse().ok()?, value)));
    let builder = known.fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value));
    Ok(Arc::new(builder.with_bucket_name(bucket).build()?))
}

fn open_gcs(bucket: &str, environment: &Environment) -> Opened {
    let known = family(environment, "GOOGLE_").filter_map(|(name, value)| Some((name.parse().ok()?, value)));
    let builder =
        known.fold(GoogleCloudStorageBuilder::new(), |builder, (key, value)| builder.with_config(key, value));
    Ok(Arc::new(builder.with_bucket_name(bucket).build()?))
}

fn open_azure(container: &str, environment: &Environment) -> Opened {
    let known = family(environment, "AZURE_").filter_map(|(name, value)| Some((name.parse().ok()?, value)));
    let builder =
        known.fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| builder.with_config(key, value));
    Ok(Arc::new(builder.with_container_name(container).build()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
            ("AWS_REGION", "eu-west-1"),
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "aHVzaA=="),
            (
                "GOOGLE_SERVICE_ACCOUNT_KEY",
                r#"{"gcs_base_url": "https://localhost", "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}"#,
            ),
        ];
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn stores_are_opened_by_url() {
        for url in [
            "file:///var/backups/etcd",
            "s3://bucket/a/b",
            "gs://bucket/a",
            "az://container",
            "azblob://container/a",
        ] {
            let store = Store::open(url, &environment()).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(store.directory.is_some(), url.starts_with("file"), "{url}");
            let shown = format!("{:?}", store.url());
            assert!(!shown.contains("hush"), "{shown}");
        }
        let store = Store::open("s3://bucket/a/b/", &environment()).expect("a store");
        assert_eq!(store.prefix.as_ref(), "a/b");
    }

    #[test]
    fn urls_that_name_no_store_are_refused_without_secrets() {
        for (url, why) in [
            ("backups", "relative"),
            ("file://host/backups", "directory of this machine"),
            ("ftp://host/backups", "begins with none"),
            ("s3:///prefix", "bucket"),
            ("s3://key:hush@bucket/prefix", "environment"),
            ("az://container/a?sig=hush", "environment"),
        ] {
            let error = Store::open(url, &environment()).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
