//! What the tests of the gateway share.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, Txn, TxnOp};
use repot_certs::clients::Authorities;
use repot_certs::tls::{Options as TlsOptions, Serving, ServingFiles};
use repot_etcd::gateway::{Endpoint, Gateway, Handle, Limits, Options};
use repot_etcd::link;
use repot_tests::etcd::EtcdCluster;

pub const DEADLINE: Duration = Duration::from_secs(60);
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub fn endpoints(urls: &[String], near: bool) -> Vec<Endpoint> {
    urls.iter().map(|url| Endpoint { url: url.clone(), near }).collect()
}

/// A gateway without TLS.
pub async fn open(endpoints: Vec<Endpoint>) -> Result<Handle> {
    let options = Options {
        listen: ANY_PORT,
        serving: None,
        clients: None,
        endpoints,
        access: link::Options::default(),
        limits: Limits::default(),
    };
    Ok(Gateway::start(options).await?)
}

/// A gateway with TLS on both sides, by the certificates of the cluster.
pub async fn open_tls(etcd: &EtcdCluster) -> Result<Handle> {
    let tls = etcd.tls().context("the cluster has no TLS")?;
    let files = ServingFiles { certificate: tls.cert.clone(), key: tls.key.clone() };
    let (ca, identity) = (fs::read(&tls.ca)?, (fs::read(&tls.cert)?, fs::read(&tls.key)?));
    let options = Options {
        listen: ANY_PORT,
        serving: Some(Serving::load(TlsOptions::from(files))?),
        clients: Some(Authorities::load(tls.ca.clone())?),
        endpoints: endpoints(&etcd.endpoints(), true),
        access: link::Options { ca: Some(ca), identity: Some(identity), ..link::Options::default() },
        limits: Limits::default(),
    };
    Ok(Gateway::start(options).await?)
}

pub async fn client(gateway: &Handle) -> Result<Client> {
    Ok(Client::connect([format!("http://{}", gateway.addr())], None).await?)
}

/// Makes the key, if nobody has before. A second time the same is an error of the gateway's: it sent a write twice.
pub async fn create(client: &Client, key: &str, value: &str) -> Result<i64, Error> {
    let absent = [Compare::create_revision(key, CompareOp::Equal, 0)];
    let put = [TxnOp::put(key, value, None)];
    let answer = client.kv_client().txn(Txn::new().when(absent).and_then(put)).await?;
    match answer.succeeded() {
        true => Ok(answer.header().map_or(0, |header| header.revision())),
        false => Err(Error::InvalidArgs(format!("{key} is there already"))),
    }
}

/// All keys below a prefix with how often each was written.
pub async fn versions(client: &Client, prefix: &str) -> Result<Vec<(String, i64)>> {
    let answer = client.kv_client().get(prefix, Some(GetOptions::new().with_prefix())).await?;
    answer.kvs().iter().map(|kv| Ok((kv.key_str()?.to_owned(), kv.version()))).collect()
}
