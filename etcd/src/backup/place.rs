//! From the store that an object names, and the Secret beside it, to a URL and the variables by which it is opened.
//!
//! Keys of the Secret are those that Gardener's extensions write for etcd-backup-restore.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::snapshot::store::{Environment, Result, Store};

/// `backupStore` of a HostedEtcd.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// `S3`, `GCS`, `ABS` or `Local`.
    pub provider: String,
    /// Bucket, container or directory.
    pub container: String,
    /// Where in it.
    pub prefix: String,
    /// URL of the store's API where it is not the provider's own.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The Secret with the credentials.
    #[serde(default)]
    pub secret_ref: Option<SecretRef>,
}

/// A Secret of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SecretRef {
    /// Its name.
    pub name: String,
}

/// Variable, key of the Secret.
type Pairs = &'static [(&'static str, &'static str)];

const S3: Pairs = &[
    ("AWS_ACCESS_KEY_ID", "accessKeyID"),
    ("AWS_SECRET_ACCESS_KEY", "secretAccessKey"),
    ("AWS_REGION", "region"),
    ("AWS_ENDPOINT", "endpoint"),
];
const GCS: Pairs = &[("GOOGLE_SERVICE_ACCOUNT_KEY", "serviceaccount.json")];
const ABS: Pairs =
    &[("AZURE_STORAGE_ACCOUNT_NAME", "storageAccount"), ("AZURE_STORAGE_ACCOUNT_KEY", "storageKey")];

impl Place {
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

    /// Which variable has the value of which key of the Secret.
    #[must_use]
    pub fn credentials(&self) -> Pairs {
        match self.provider.as_str() {
            "GCS" => GCS,
            "ABS" => ABS,
            "Local" => &[],
            _ => S3,
        }
    }

    /// Variables that are no secret.
    #[must_use]
    pub fn settings(&self) -> Environment {
        let Some(endpoint) = self.endpoint.clone().filter(|endpoint| !endpoint.is_empty()) else {
            return Environment::new();
        };
        let plain = endpoint.starts_with("http://");
        let (name, allow) = match self.provider.as_str() {
            "ABS" => ("AZURE_ENDPOINT", "AZURE_ALLOW_HTTP"),
            // Google's is a part of the service account.
            "GCS" | "Local" => return Environment::new(),
            _ => ("AWS_ENDPOINT", "AWS_ALLOW_HTTP"),
        };
        let allow = plain.then(|| (allow.to_owned(), "true".to_owned()));
        std::iter::once((name.to_owned(), endpoint)).chain(allow).collect()
    }

    /// Opens the store with what its Secret says.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self, secret: &BTreeMap<String, Vec<u8>>) -> Result<Store> {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).trim().to_owned();
        let given = self.credentials().iter();
        let mut all: Environment = given
            .filter_map(|(variable, key)| Some(((*variable).to_owned(), text(secret.get(*key)?))))
            .collect();
        all.extend(self.settings());
        Store::open(&self.url(), &all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_place(provider: &str, container: &str, endpoint: Option<&str>) -> Place {
        let (provider, prefix) = (provider.to_owned(), "shoot--p--a/main".to_owned());
        let endpoint = endpoint.map(str::to_owned);
        Place { provider, container: container.to_owned(), prefix, endpoint, secret_ref: None }
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
            assert_eq!(place.open(&secret).expect("a store").url(), url);
        }
        assert_eq!(mk_place("Local", "/var/backups/", None).directory().as_deref(), Some("/var/backups"));
        assert_eq!(mk_place("GCS", "b", None).url(), "gs://b/shoot--p--a/main");
        let own = mk_place("S3", "b", Some("http://10.0.0.20:9000")).settings();
        assert_eq!(
            (own["AWS_ENDPOINT"].as_str(), own["AWS_ALLOW_HTTP"].as_str()),
            ("http://10.0.0.20:9000", "true")
        );
        assert_eq!(mk_place("S3", "b", Some("https://s3.example.com")).settings().len(), 1);
    }
}
