//! What the tests of the gateway share.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, Txn, TxnOp};
use repot_certs::clients::Authorities;
use repot_certs::tls::{Options as TlsOptions, Serving, ServingFiles};
use repot_etcd::gateway::{Endpoint, Gateway, Handle, Limits, Options};
use repot_etcd::link;
use repot_tests::etcd::{EtcdCluster, EtcdOptions};
use repot_tests::test_env::TestEnv;

pub const DEADLINE: Duration = Duration::from_secs(60);
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub fn endpoints(urls: &[String], near: bool) -> Vec<Endpoint> {
    urls.iter().map(|url| Endpoint { url: url.clone(), near }).collect()
}

/// A cluster with certificates for clients and members, as every hosted etcd has them.
pub async fn start(env: &TestEnv, members: usize) -> Result<EtcdCluster> {
    EtcdCluster::start_with(env, members, EtcdOptions { tls: true, ..EtcdOptions::default() }).await
}

/// A gateway of a cluster, with certificates on both sides where that has some.
pub async fn open(etcd: &EtcdCluster, endpoints: Vec<Endpoint>) -> Result<Handle> {
    let serving = etcd.tls().map(|tls| ServingFiles { certificate: tls.cert.clone(), key: tls.key.clone() });
    let options = Options {
        listen: ANY_PORT,
        serving: serving.map(|files| Serving::load(TlsOptions::from(files))).transpose()?,
        clients: etcd.tls().map(|tls| Authorities::load(tls.ca.clone())).transpose()?,
        endpoints,
        access: access(etcd, Vec::new())?,
        limits: Limits::default(),
    };
    Ok(Gateway::start(options).await?)
}

fn access(etcd: &EtcdCluster, endpoints: Vec<String>) -> Result<link::Options> {
    let Some(tls) = etcd.tls() else { return Ok(link::Options { endpoints, ..link::Options::default() }) };
    let identity = (fs::read(&tls.cert)?, fs::read(&tls.key)?);
    let ca = Some(fs::read(&tls.ca)?);
    Ok(link::Options { endpoints, ca, identity: Some(identity), ..link::Options::default() })
}

/// A client of a gateway.
pub async fn client(etcd: &EtcdCluster, gateway: &Handle) -> Result<Client> {
    let scheme = if etcd.tls().is_some() { "https" } else { "http" };
    direct(etcd, &format!("{scheme}://{}", gateway.addr())).await
}

/// A client of one member.
pub async fn direct(etcd: &EtcdCluster, url: &str) -> Result<Client> {
    Ok(link::connect(&access(etcd, vec![url.to_owned()])?).await?)
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
