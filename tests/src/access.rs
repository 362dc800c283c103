//! How to reach an API server and as whom: what a kubeconfig file says.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::pki::{Leaf, write_private};

/// An API server and a way in.
#[derive(Clone, Debug)]
pub struct Access {
    /// Base URL, such as `https://127.0.0.1:6443`.
    pub server: String,
    /// The certificates that its serving certificate must lead to, PEM.
    pub ca_pem: String,
    /// How the client proves who it is.
    pub credential: Credential,
}

/// A proof of who the client is.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A client certificate.
    Certificate(Leaf),
    /// A bearer token.
    Token(String),
    /// None: the server sees `system:anonymous`, or refuses.
    Anonymous,
}

impl Access {
    /// The same server as somebody else.
    pub fn with(&self, credential: Credential) -> Self {
        Self { credential, ..self.clone() }
    }

    /// Writes it as a kubeconfig file (JSON is YAML), readable by its owner only.
    pub fn write(&self, path: impl Into<PathBuf>) -> Result<PathBuf> {
        write_private(path.into(), &self.to_kubeconfig())
    }

    /// The text of its kubeconfig file.
    pub fn to_kubeconfig(&self) -> String {
        self.render().to_string()
    }

    /// Reads a kubeconfig file: server, CA and credential of its current context.
    ///
    /// Errors: when it cannot be read, or its current context lacks one of them.
    pub fn read(path: &Path) -> Result<Self> {
        parse(path).with_context(|| format!("failed to read the kubeconfig {}", path.display()))
    }

    fn render(&self) -> Value {
        let user = match &self.credential {
            Credential::Certificate(leaf) => json!({
                "client-certificate-data": STANDARD.encode(&leaf.cert_pem),
                "client-key-data": STANDARD.encode(&leaf.key_pem),
            }),
            Credential::Token(token) => json!({ "token": token }),
            Credential::Anonymous => json!({}),
        };
        let cluster =
            json!({ "server": self.server, "certificate-authority-data": STANDARD.encode(&self.ca_pem) });
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "testbed", "cluster": cluster }],
            "users": [{ "name": "testbed", "user": user }],
            "contexts": [{ "name": "testbed", "context": { "cluster": "testbed", "user": "testbed" } }],
            "current-context": "testbed",
        })
    }
}

fn parse(path: &Path) -> Result<Access> {
    // Relative paths in it are resolved against its directory, as kubectl does. As JSON its secrets can be read.
    let config = serde_json::to_value(Kubeconfig::read_from(path)?)?;
    let current = named(&config, "contexts", &config["current-context"])?;
    let cluster = named(&config, "clusters", &current["context"]["cluster"])?;
    let user = named(&config, "users", &current["context"]["user"])?;
    let server = cluster["cluster"]["server"].as_str().context("its cluster has no server")?;
    let ca_pem = pem(&cluster["cluster"], "certificate-authority")?;
    Ok(Access {
        server: server.trim_end_matches('/').to_owned(),
        ca_pem: ca_pem.context("its cluster has no certificate authority")?,
        credential: credential(&user["user"])?,
    })
}

/// The entry of that name in one of the lists of a kubeconfig.
fn named<'a>(config: &'a Value, list: &str, name: &Value) -> Result<&'a Value> {
    let entries = config[list].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = entries.iter().find(|entry| &entry["name"] == name);
    found.with_context(|| format!("it names {name}, which is not among its {list}"))
}

fn credential(user: &Value) -> Result<Credential> {
    let certificate = (pem(user, "client-certificate")?, pem(user, "client-key")?);
    Ok(match (certificate, user["token"].as_str()) {
        ((Some(cert_pem), Some(key_pem)), _) => Credential::Certificate(Leaf { cert_pem, key_pem }),
        (_, Some(token)) => Credential::Token(token.to_owned()),
        _ => Credential::Anonymous,
    })
}

/// PEM from one of a kubeconfig's pairs of fields: `<field>-data` holds base64, `<field>` the path of a file.
fn pem(section: &Value, field: &str) -> Result<Option<String>> {
    if let Some(data) = section[format!("{field}-data")].as_str() {
        return Ok(Some(String::from_utf8(STANDARD.decode(data)?)?));
    }
    let Some(file) = section[field].as_str() else { return Ok(None) };
    let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {file}"))?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Ca;

    #[test]
    fn reads_back_what_it_wrote() {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Ca::new("ca").expect("a CA");
        let leaf = authority.client("alice", &["plants", "pots"]).expect("a certificate");
        let access = Access {
            server: "https://127.0.0.1:6443".to_owned(),
            ca_pem: authority.pem(),
            credential: Credential::Certificate(leaf),
        };
        for credential in [access.credential.clone(), Credential::Token("t".into()), Credential::Anonymous] {
            let written = access.with(credential);
            let path = written.write(dir.path().join("kubeconfig")).expect("a file");
            let read = Access::read(&path).expect("the same");
            assert_eq!(format!("{read:?}"), format!("{written:?}"));
        }
    }
}
