//! Certificates by name, and versions of TLS.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::http::Api;
use repot_tests::pki::Ca;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::{Client, ClientBuilder, Method};

use crate::shootstate::world::World;

/// The certificate that is shown to who asks for a host, trusting this authority.
async fn shown(port: u16, host: &str, ca: &Ca, client: ClientBuilder) -> Result<Vec<u8>> {
    let access = Access {
        server: format!("https://{host}:{port}"),
        ca_pem: ca.pem(),
        credential: Credential::Anonymous,
    };
    let client = client.tls_info(true).resolve(host, SocketAddr::from(([127, 0, 0, 1], port)));
    let response = Api::build(&access, client)?.request(Method::GET, "/readyz").send().await?;
    let info = response.extensions().get::<reqwest::tls::TlsInfo>().context("no TLS")?;
    Ok(info.peer_certificate().context("no certificate")?.to_vec())
}

#[test]
fn clients_get_the_certificate_for_the_name_they_ask_for_and_a_new_one_when_its_files_change() {
    run(async |env| {
        let ca = Ca::new("by-name")?;
        let dir = env.make_dir("sni")?;
        let pair = |name: &str, names: &[&str]| -> Result<String> {
            let (cert, key) = ca.server(names)?.write(&dir, name)?;
            Ok(format!("--tls-sni-cert-key={},{}", cert.display(), key.display()))
        };
        let wildcard = pair("wildcard", &["*.example.com"])? + ":*.example.com";
        let exact = pair("exact", &["api.example.com", "127.0.0.1"])?;
        let flags = vec![wildcard, exact, "--tls-min-version=VersionTLS13".into()];
        let mut world = World::garden_with(env, flags).await?;
        let port = world.repot().port()?;
        let other = shown(port, "other.example.com", &ca, Client::builder()).await?;
        let api = shown(port, "api.example.com", &ca, Client::builder()).await?;
        ensure!(other != api, "the wildcard's certificate was shown for an exact name");
        ensure!(
            shown(port, "127.0.0.1", &ca, Client::builder()).await? == api,
            "without a name the address does not count"
        );
        let garden = world.garden.as_ref().context("a garden")?;
        shown(port, "localhost", &garden.pki().serving, Client::builder()).await?;

        let old = Client::builder().max_tls_version(reqwest::tls::Version::TLS_1_2);
        ensure!(shown(port, "api.example.com", &ca, old).await.is_err(), "TLS 1.2 is spoken");

        pair("exact", &["api.example.com"])?;
        until("the new certificate", Duration::from_secs(60), async || {
            ensure!(
                shown(port, "api.example.com", &ca, Client::builder()).await? != api,
                "the old one is shown"
            );
            Ok(())
        })
        .await
    });
}
