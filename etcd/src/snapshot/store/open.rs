//! From a URL and environment variables to a store.

use std::{
    path::{Path as FilePath, PathBuf},
    sync::Arc,
    time::Duration,
};

use object_store::{
    BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, local::LocalFileSystem, path::Path,
};
use url::Url;

use super::{
    Environment, Error, Result, Store,
    connect::Connector,
    credentials::{self, CredentialsSource, Followed, Kind},
    seal::Seal,
};

/// How long one request is tried again before its failure counts: longer than a load balancer needs to find another server.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait between two tries: whoever waits for a store to come back learns it soon.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Without a byte for so long, a connection is given up. There is no limit for a whole request: large objects take their time.
const SILENCE: Duration = Duration::from_secs(30);

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
    /// `AWS_CA_BUNDLE` is a file with further authorities. `AWS_APPLICATION_CREDENTIALS` and `AZURE_APPLICATION_CREDENTIALS` are
    /// directories with a file for each key of a Secret of etcd-backup-restore, and with `_JSON` at their end files; what is there
    /// goes before variables. `STORE_ENCRYPTION_PROVIDER_CONFIG` is a file by whose keys new snapshots are sealed and sealed ones are
    /// opened; without it, the file `encryptionConfiguration` in the directory `STORE_SECRET` is, where there is one.
    /// `STORE_PATIENCE_SECONDS` is how long one request is tried again, 60 where it is left out.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::Open`], [`Error::Credentials`], [`Error::Keys`].
    pub fn open(url: &str, environment: &Environment) -> Result<Self> {
        Self::open_with(url, environment, None, None)
    }

    /// The same with a mounted Secret, and with the URL of the store's API, where there are such; they go before variables.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        url: &str,
        environment: &Environment,
        secret: Option<&FilePath>,
        endpoint: Option<&str>,
    ) -> Result<Self> {
        let refuse = |why: &str| Error::Url { url: without_secrets(url), why: why.to_owned() };
        let parsed = Url::parse(url).map_err(|error| refuse(&error.to_string()))?;
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err(refuse("credentials belong into environment variables"));
        }
        if parsed.scheme() == "file" {
            let store = Self::directory(&parsed);
            let store = store.ok_or_else(|| refuse("it names no directory of this machine"))?;
            return Ok(Self { seal: Seal::find(url, environment, secret)?, ..store });
        }
        let container = parsed.host_str().filter(|host| !host.is_empty());
        let container = container.ok_or_else(|| refuse("it names no bucket"))?;
        let prefix = Path::from_url_path(parsed.path()).map_err(|error| refuse(&error.to_string()))?;
        let Some(kind) = kind_of(parsed.scheme()) else {
            return Err(refuse("it begins with none of file:, s3:, gs:, az: and azblob:"));
        };
        let seal = Seal::find(url, environment, secret)?;
        let mut environment = environment.clone();
        let place = secret.map(|path| CredentialsSource::Directory(path.to_owned()));
        let place = place.or_else(|| CredentialsSource::of(kind, &environment));
        if let Some(place) = &place {
            credentials::add(kind, place, &mut environment)?;
        }
        if let Some(endpoint) = endpoint {
            let family = family_of(kind).trim_end_matches('_');
            let mut set = |name: &str, value: String| drop(environment.insert(name.to_owned(), value));
            credentials::set_endpoint(family, endpoint, &mut set);
        }
        let opened = match kind {
            Kind::S3 => open_s3(container, &environment, place.as_ref())?,
            Kind::Gcs => open_gcs(container, &environment),
            Kind::Azure => open_azure(container, &environment),
        };
        let objects = opened.map_err(|source| Error::Open { url: url.to_owned(), source: source.into() })?;
        let patience = patience(&environment);
        Ok(Self { objects, prefix, directory: None, url: url.to_owned(), patience, seal, sent: None })
    }

    fn directory(url: &Url) -> Option<Self> {
        let directory: PathBuf = url.to_file_path().ok()?;
        let prefix = Path::from_absolute_path(&directory).ok()?;
        let objects = Arc::new(LocalFileSystem::new().with_fsync(true));
        let (directory, url) = (Some(directory), url.to_string());
        Some(Self { objects, prefix, directory, url, patience: PATIENCE, seal: None, sent: None })
    }
}

/// The environment variables of this process; those that are not text are nobody's credentials.
#[must_use]
pub fn environment() -> Environment {
    let text = |value: std::ffi::OsString| value.into_string().ok();
    std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
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

fn kind_of(scheme: &str) -> Option<Kind> {
    match scheme {
        "s3" | "s3a" => Some(Kind::S3),
        "gs" | "gcs" => Some(Kind::Gcs),
        "az" | "azblob" | "azure" | "abs" => Some(Kind::Azure),
        _ => None,
    }
}

fn family_of(kind: Kind) -> &'static str {
    match kind {
        Kind::S3 => "AWS_",
        Kind::Gcs => "GOOGLE_",
        Kind::Azure => "AZURE_",
    }
}

fn client() -> ClientOptions {
    ClientOptions::new().with_timeout_disabled().with_read_timeout(SILENCE)
}

fn patience(environment: &Environment) -> Duration {
    let said = environment.get("STORE_PATIENCE_SECONDS").and_then(|text| text.parse().ok());
    said.map_or(PATIENCE, Duration::from_secs)
}

fn retry(environment: &Environment) -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: LONGEST_WAIT, ..BackoffConfig::default() };
    // The time is the limit, not the number.
    RetryConfig { backoff, max_retries: 1000, retry_timeout: patience(environment) }
}

fn open_s3(bucket: &str, environment: &Environment, place: Option<&CredentialsSource>) -> Result<Opened> {
    let mut client = client();
    if let Some(path) = environment.get("AWS_CA_BUNDLE").filter(|path| !path.is_empty()) {
        let wrong = |source| Error::Credentials { path: path.into(), source };
        let bundle = Certificate::from_pem_bundle(&std::fs::read(path).map_err(wrong)?);
        let bundle = bundle.map_err(|error| wrong(std::io::Error::other(error)))?;
        client = bundle.into_iter().fold(client, ClientOptions::with_root_certificate);
    }
    let known = family(environment, "AWS_").filter_map(|(name, value)| Some((name.parse().ok()?, value)));
    let builder = AmazonS3Builder::new()
        .with_http_connector(Connector)
        .with_client_options(client)
        .with_retry(retry(environment));
    let mut builder = known.fold(builder, |builder, (key, value)| builder.with_config(key, value));
    if let Some(followed) = place.map(Followed::new).transpose()?.flatten() {
        builder = builder.with_credentials(Arc::new(followed));
    }
    Ok(builder.with_bucket_name(bucket).build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>))
}

fn open_gcs(bucket: &str, environment: &Environment) -> Opened {
    let known = family(environment, "GOOGLE_").filter_map(|(name, value)| Some((name.parse().ok()?, value)));
    let builder = GoogleCloudStorageBuilder::new()
        .with_http_connector(Connector)
        .with_client_options(client())
        .with_retry(retry(environment));
    let builder = known.fold(builder, |builder, (key, value)| builder.with_config(key, value));
    Ok(Arc::new(builder.with_bucket_name(bucket).build()?))
}

fn open_azure(container: &str, environment: &Environment) -> Opened {
    let known = family(environment, "AZURE_").filter_map(|(name, value)| Some((name.parse().ok()?, value)));
    let builder = MicrosoftAzureBuilder::new()
        .with_http_connector(Connector)
        .with_client_options(client())
        .with_retry(retry(environment));
    let builder = known.fold(builder, |builder, (key, value)| builder.with_config(key, value));
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
