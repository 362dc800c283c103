//! An object store as Azure has it: Azurite, which checks signatures. It takes long to install: `tests/azure/build` does that, for
//! `make soak`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use reqwest::Client;

use crate::process::{Process, Spec};
use crate::relay::Relay;
use crate::test_env::TestEnv;
use crate::{binaries, pki, port};

const START_DEADLINE: Duration = Duration::from_secs(60);
/// The one that is there from the start.
const CONTAINER: &str = "backups";
const ACCOUNT: &str = "testbed";

/// An object store. It ends when it is dropped.
pub struct AzureServer {
    /// The way that clients take.
    pub relay: Relay,
    environment: BTreeMap<String, String>,
    _process: Process,
}

impl AzureServer {
    /// URL of a store with that prefix.
    pub fn url(&self, prefix: &str) -> String {
        format!("az://{CONTAINER}/{prefix}")
    }

    /// Environment variables for [`AzureServer::url`].
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.environment.clone()
    }

    /// Starts one with an account and a container.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let (port, key) = (port::reserve()?, pki::random_bytes::<64>()?);
        let text = STANDARD.encode(key);
        let dir = env.make_dir("azure")?;
        let port_text = port.to_string();
        let spec = Spec::new("azurite", binaries::find("azurite-blob")?)
            .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{text}"))
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port_text, "--disableTelemetry", "--location"])
            .arg(dir);
        let mut process = Process::start(env, spec)?;
        let client = Client::builder().timeout(Duration::from_secs(5)).build()?;
        process.ready(START_DEADLINE, async || make_container(&client, port, &key).await).await?;
        let relay = Relay::start(&[([127, 0, 0, 1], port).into()]).await?;
        let environment = [
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", text),
            ("AZURE_STORAGE_ENDPOINT", format!("http://127.0.0.1:{}/{ACCOUNT}", relay.port())),
            ("AZURE_ALLOW_HTTP", "true".to_owned()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(Self { relay, environment, _process: process })
    }
}

/// Asks for a container, signed with the key of the account.
async fn make_container(client: &Client, port: u16, key: &[u8]) -> Result<()> {
    let date = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let version = "2023-11-03";
    let headers = format!("x-ms-date:{date}\nx-ms-version:{version}");
    let resource = format!("/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container");
    // Eleven headers that are not sent.
    let text = format!("PUT\n{}{headers}\n{resource}", "\n".repeat(11));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let signed = format!("SharedKey {ACCOUNT}:{}", STANDARD.encode(tag.as_ref()));
    let url = format!("http://127.0.0.1:{port}/{ACCOUNT}/{CONTAINER}?restype=container");
    let request = client.put(&url).header("x-ms-date", &date).header("x-ms-version", version);
    let answer = request.header("authorization", signed).header("content-length", "0").send().await?;
    let status = answer.status();
    let text = answer.text().await.context("no answer")?;
    ensure!(status.is_success() || status.as_u16() == 409, "{url} answers {status}: {text}");
    Ok(())
}
