//! Files by which the controller reaches the proxy: a kubeconfig with a certificate of an authority that only this proxy trusts.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use repot_certs::{
    Authority,
    clients::Authorities,
    tls::{Serving, ServingFiles},
    write_private,
};
use serde_json::json;
use time::{Duration, OffsetDateTime};

/// OpenSSL takes a certificate for self-signed whose subject is that of its authority, so the two differ.
const AUTHORITY: &str = "repot-watchdog-proxy-ca";
const SERVER: &str = "repot-watchdog-proxy";
/// The controller reads its kubeconfig once, so its certificate lives as long as the authority.
const CLIENT_LIFETIME: Duration = Duration::days(3650);

/// The files cannot be written or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be made.
    #[error("failed to make the directory {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A certificate cannot be made or read.
    #[error("failed to make certificates")]
    Certificates(#[from] repot_certs::Error),
    /// The serving certificate cannot be used.
    #[error("failed to load the serving certificate")]
    Serving(#[from] repot_certs::tls::Error),
    /// The authority of the client cannot be used.
    #[error("failed to load the authority of the client")]
    Authorities(#[from] repot_certs::clients::Error),
    /// The kubeconfig cannot be made readable for the group.
    #[error("failed to set the mode of {path}")]
    Mode {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The TLS side of the proxy.
pub struct Tls {
    /// The certificate that the proxy serves with.
    pub serving: Serving,
    /// Authorities of the clients that it answers.
    pub authorities: Authorities,
    /// The file for the controller.
    pub kubeconfig: PathBuf,
}

/// Makes certificates and the kubeconfig in a directory. An authority that is there is used again, so that a controller that has read
/// the kubeconfig of an earlier process is still answered.
///
/// # Errors
/// [`Error`].
pub fn make(dir: &Path, address: SocketAddr, now: OffsetDateTime) -> Result<Tls, Error> {
    fs::create_dir_all(dir).map_err(|source| Error::Directory { path: dir.to_owned(), source })?;
    let authority = Authority::load_or_generate(dir, "ca", AUTHORITY, now)?;
    let files = ServingFiles { certificate: dir.join("server.crt"), key: dir.join("server.key") };
    issue_serving(&authority, &files, address, now)?;
    let client = authority.issue_client_for("extension-controller", AUTHORITY, now, CLIENT_LIFETIME)?;
    let kubeconfig = dir.join("kubeconfig");
    write_private(&kubeconfig, render(address, authority.certificate_pem(), &client).as_bytes())?;
    // The controller may run as another user of the group that the volume belongs to.
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(&kubeconfig, mode)
        .map_err(|source| Error::Mode { path: kubeconfig.clone(), source })?;
    Ok(Tls {
        serving: Serving::load(files.into())?,
        authorities: Authorities::load(dir.join("ca.crt"))?,
        kubeconfig,
    })
}

/// Makes a new serving certificate, which connections get from the next reload on.
///
/// # Errors
/// [`Error`].
pub fn renew(dir: &Path, address: SocketAddr, now: OffsetDateTime) -> Result<(), Error> {
    let authority = Authority::load_or_generate(dir, "ca", AUTHORITY, now)?;
    let files = ServingFiles { certificate: dir.join("server.crt"), key: dir.join("server.key") };
    issue_serving(&authority, &files, address, now)
}

fn issue_serving(
    authority: &Authority,
    files: &ServingFiles,
    address: SocketAddr,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let names = [address.ip().to_string(), "localhost".to_owned()];
    let leaf = authority.issue_server(SERVER, &names, now)?;
    write_private(&files.key, leaf.key_pem.as_bytes())?;
    write_private(&files.certificate, leaf.certificate_pem.as_bytes())?;
    Ok(())
}

/// A kubeconfig as JSON, which is YAML.
fn render(address: SocketAddr, authority_pem: &str, client: &repot_certs::Leaf) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let encode = |pem: &str| STANDARD.encode(pem);
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "watchdog-proxy",
        "clusters": [{"name": "watchdog-proxy", "cluster": {
            "server": format!("https://{address}"), "certificate-authority-data": encode(authority_pem),
        }}],
        "users": [{"name": "controller", "user": {
            "client-certificate-data": encode(&client.certificate_pem), "client-key-data": encode(&client.key_pem),
        }}],
        "contexts": [{"name": "watchdog-proxy", "context": {"cluster": "watchdog-proxy", "user": "controller"}}],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_stays_and_only_the_kubeconfig_is_for_the_group() {
        repot_certs::tls::install_crypto_provider();
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().join("proxy");
        let address = "127.0.0.1:7444".parse().expect("an address");
        let read = |file: &str| fs::read_to_string(dir.join(file)).expect("a file");
        make(&dir, address, OffsetDateTime::now_utc()).expect("files");
        let (authority, first) = (read("ca.crt"), read("kubeconfig"));
        make(&dir, address, OffsetDateTime::now_utc()).expect("files");
        assert_eq!(read("ca.crt"), authority);
        assert_ne!(read("kubeconfig"), first);
        for (file, mode) in [("ca.key", 0o600), ("server.key", 0o600), ("kubeconfig", 0o640)] {
            let found = fs::metadata(dir.join(file)).expect("a file").permissions().mode() & 0o777;
            assert_eq!(found, mode, "{file}");
        }
    }
}
