//! From the store that an object names, and the Secret beside it, to a URL and the variables by which it is opened.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::snapshot::store::{Environment, Error, Result, Store};

/// Variables that belong to one store, and are of no use to another: those that [`StoreRef::environment`] may set, and the keys.
pub const VARIABLES: [&str; 11] = [
    "AWS_ALLOW_HTTP",
    "AWS_APPLICATION_CREDENTIALS",
    "AWS_ENDPOINT",
    "AZURE_ALLOW_HTTP",
    "AZURE_APPLICATION_CREDENTIALS",
    "AZURE_ENDPOINT",
    "GOOGLE_ALLOW_HTTP",
    "GOOGLE_ENDPOINT",
    "GOOGLE_SERVICE_ACCOUNT",
    "STORE_ENCRYPTION_PROVIDER_CONFIG",
    "STORE_SECRET",
];

/// `backupStore` of a HostedEtcd, and `source.store` of an EtcdRestore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreRef {
    /// `S3`, `GCS`, `ABS` or `Local`.
    pub provider: String,
    /// Bucket, container or directory.
    pub container: String,
    /// Prefix of the store within the container.
    pub prefix: String,
    /// URL of the store's API where it is not the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// A Secret of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    /// Name of the Secret with the credentials.
    pub name: String,
}

impl StoreRef {
    /// The URL, for [`Store::open`].
    #[must_use]
    pub fn url(&self) -> String {
        let (container, prefix) = (self.container.trim_end_matches('/'), &self.prefix);
        match self.provider.as_str() {
            "GCS" => format!("gs://{container}/{prefix}"),
            "ABS" => format!("az://{container}/{prefix}"),
            "Local" => format!("file:///{}/{prefix}", container.trim_start_matches('/')),
            _ => format!("s3://{container}/{prefix}"),
        }
    }

    /// The directory of the machine that a `Local` store is in.
    #[must_use]
    pub fn directory(&self) -> Option<String> {
        (self.provider == "Local").then(|| format!("/{}", self.container.trim_matches('/')))
    }

    /// Variables with which a program opens the store, given where the Secret is mounted.
    #[must_use]
    pub fn environment(&self, mounted: &str) -> Environment {
        let mut all = Environment::new();
        let mut set = |name: &str, value: &str| drop(all.insert(name.to_owned(), value.to_owned()));
        if self.secret_ref.is_some() {
            // Whoever opens the store looks there for the keys of snapshots.
            set("STORE_SECRET", mounted);
            match self.provider.as_str() {
                "GCS" => set("GOOGLE_SERVICE_ACCOUNT", &format!("{mounted}/serviceaccount.json")),
                "ABS" => set("AZURE_APPLICATION_CREDENTIALS", mounted),
                "Local" => {}
                _ => set("AWS_APPLICATION_CREDENTIALS", mounted),
            }
        }
        if let Some(endpoint) = self.endpoint.as_deref().filter(|endpoint| !endpoint.is_empty()) {
            let family = match self.provider.as_str() {
                "ABS" => "AZURE",
                "GCS" => "GOOGLE",
                _ => "AWS",
            };
            set(&format!("{family}_ENDPOINT"), endpoint);
            if endpoint.starts_with("http://") {
                set(&format!("{family}_ALLOW_HTTP"), "true");
            }
        }
        all
    }

    /// Opens the store with what its Secret says, for as long as the second value lives.
    ///
    /// # Errors
    /// As [`Store::open`], and where the Secret cannot be laid down for the library to read.
    pub fn open(&self, secret: &BTreeMap<String, Vec<u8>>, patience: Duration) -> Result<(Store, TempDir)> {
        let failed = |source| Error::Credentials { path: std::env::temp_dir(), source };
        // Nobody else can look into it.
        let mounted = tempfile::Builder::new().prefix("store.").tempdir().map_err(failed)?;
        for (key, value) in secret {
            std::fs::write(mounted.path().join(key), value).map_err(failed)?;
        }
        let mut environment = self.environment(&mounted.path().display().to_string());
        environment.insert("STORE_PATIENCE_SECONDS".to_owned(), patience.as_secs().to_string());
        Ok((Store::open(&self.url(), &environment)?, mounted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTED: &str = "/etc/store";

    fn mk_place(provider: &str, container: &str, endpoint: Option<&str>) -> StoreRef {
        let (provider, prefix) = (provider.to_owned(), "shoot--p--a/main".to_owned());
        let endpoint = endpoint.map(str::to_owned);
        let secret_ref = Some(SecretRef { name: "credentials".to_owned() });
        StoreRef { provider, container: container.to_owned(), prefix, endpoint, secret_ref }
    }

    #[test]
    fn stores_are_found() {
        let secret = [("accessKeyID", "id\n"), ("secretAccessKey", "hush"), ("region", "eu-west-1")];
        let secret = secret.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into();
        for (provider, container, url) in [
            ("S3", "bucket", "s3://bucket/shoot--p--a/main"),
            ("Local", "/var/backups", "file:///var/backups/shoot--p--a/main"),
        ] {
            let place = mk_place(provider, container, None);
            assert_eq!(place.url(), url);
            let (store, _mounted) = place.open(&secret, Duration::from_secs(5)).expect("a store");
            assert_eq!(store.url(), url);
        }
        assert_eq!(mk_place("Local", "/var/backups/", None).directory().as_deref(), Some("/var/backups"));
        assert_eq!(mk_place("GCS", "b", None).url(), "gs://b/shoot--p--a/main");
    }

    #[test]
    fn programs_are_told_where_the_secret_is_and_nothing_of_it() {
        let own = mk_place("S3", "b", Some("http://10.0.0.20:9000")).environment(MOUNTED);
        let expected = [
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_APPLICATION_CREDENTIALS", MOUNTED),
            ("AWS_ENDPOINT", "http://10.0.0.20:9000"),
            ("STORE_SECRET", MOUNTED),
        ];
        assert_eq!(own, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        for provider in ["Local", "GCS", "ABS"] {
            let own = mk_place(provider, "/b", None).environment(MOUNTED);
            assert_eq!(own["STORE_SECRET"], MOUNTED, "{provider}");
        }
        let none = StoreRef { secret_ref: None, ..mk_place("Local", "/b", None) };
        assert_eq!(none.environment(MOUNTED).len(), 0);
    }
}
