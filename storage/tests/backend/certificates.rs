//! Certificates between the backend and etcd: shown, asked for, and replaced while both run.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use futures::StreamExt;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use repot_storage::backend::{
    Backend, Error, Etcd, Outcome, Revision, WatchItem,
    etcd::{ClientFiles, Options, Tls},
};

use super::{
    etcd::{mk_put, value},
    etcd_process::{EtcdProcess, PATIENCE, ServerFiles},
};

#[tokio::test]
async fn speaks_tls_and_shows_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let files = mk_certificates(dir.path());
    let etcd = EtcdProcess::start(Some(files.clone()), &[]).await;
    let handle = Etcd::connect(etcd.options()).await.unwrap();
    assert!(matches!(handle.txn(mk_put("/a", "1")).await, Ok(Outcome::Committed(_))));

    let deadline = Duration::from_secs(2);
    let anonymous = Tls { client: None, ..files.client.clone() };
    let foreign = mk_certificates(&dir.path().join("foreign"));
    let deceived = Tls { ca_file: Some(foreign.ca), ..files.client };
    for tls in [anonymous, deceived] {
        let refused = Etcd::connect(Options { tls, deadline, ..etcd.options() }).await.unwrap();
        let refused = refused.txn(mk_put("/a", "2")).await;
        assert!(matches!(refused, Err(Error::Unavailable(_) | Error::Unknown(_))), "{refused:?}");
    }
    assert_eq!(value(&handle, "/a").await.unwrap(), "1");
}

#[tokio::test]
async fn a_missing_certificate_is_named() {
    let missing = Path::new("/nowhere/ca.pem");
    let tls = Tls { ca_file: Some(missing.into()), ..Tls::default() };
    let options = Options { tls, ..Options::new(vec!["https://127.0.0.1:1".into()], "") };
    let refused = Etcd::connect(options).await.unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("/nowhere/ca.pem")), "{refused:?}");
}

/// As when an authority is renewed: all of what the client has is replaced, one file after the other, while etcd does not know the
/// new authority yet; then etcd knows nothing else.
#[tokio::test]
async fn certificates_are_replaced_while_a_handle_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let [used, new] = ["used", "new"].map(|name| mk_certificates(&dir.path().join(name)));
    let mut etcd = EtcdProcess::start(Some(used.clone()), &[]).await;
    // etcd reads its authority's file only when it starts, so the client has one of its own.
    let tls = mk_copy(&used.client, &dir.path().join("client"));
    let handle = Etcd::connect(Options { tls: tls.clone(), ..etcd.options() }).await.unwrap();
    let mut watch = handle.watch("/".into(), Revision(0), Duration::from_millis(100)).await.unwrap();
    assert!(matches!(handle.txn(mk_put("/a", "1")).await, Ok(Outcome::Committed(_))));

    let refusals = etcd.refusals();
    mk_copy(&new.client, &dir.path().join("client"));
    let begin = Instant::now();
    while etcd.refusals() == refusals {
        assert!(begin.elapsed() < PATIENCE, "nobody looks at the files");
        assert_eq!(value(&handle, "/a").await.unwrap(), "1", "what etcd does not take is not used");
    }
    assert!(matches!(handle.txn(mk_put("/a", "2")).await, Ok(Outcome::Committed(_))));
    // A watch of before goes on.
    let newest = handle.revision().await.unwrap();
    while watch.next().await.unwrap().unwrap() != WatchItem::Progress(newest) {}

    etcd.kill();
    etcd.restart_with(new).await;
    let begin = Instant::now();
    while let Err(error) = handle.txn(mk_put("/a", "3")).await {
        assert!(begin.elapsed() < PATIENCE, "the new certificates are not used: {error}");
    }
    assert_eq!(value(&handle, "/a").await.unwrap(), "3");
    let mut watch = handle.watch("/".into(), Revision(0), Duration::from_millis(100)).await.unwrap();
    assert!(watch.next().await.unwrap().is_ok());
}

/// Puts what a client needs into another place.
fn mk_copy(tls: &Tls, to: &Path) -> Tls {
    std::fs::create_dir_all(to).unwrap();
    let copy = |file: &Path| {
        let copy = to.join(file.file_name().unwrap());
        std::fs::copy(file, &copy).unwrap();
        copy
    };
    let client = tls.client.as_ref().unwrap();
    Tls {
        client: Some(ClientFiles { certificate: copy(&client.certificate), key: copy(&client.key) }),
        ca_file: tls.ca_file.as_deref().map(copy),
        server_name: None,
    }
}

/// A CA, and certificates of a server on 127.0.0.1 and of a client.
fn mk_certificates(dir: &Path) -> ServerFiles {
    std::fs::create_dir_all(dir).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let write = |name: &str, text: String| {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let issue = |name: &str, hosts: Vec<String>| {
        let mut params = CertificateParams::new(hosts).unwrap();
        // etcd dials itself with its server certificate.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        ClientFiles {
            certificate: write(&format!("{name}.crt"), certificate.pem()),
            key: write(&format!("{name}.key"), key.serialize_pem()),
        }
    };
    let server = issue("server", vec!["127.0.0.1".into()]);
    let client = issue("client", vec![]);
    let ca = write("ca.crt", ca.pem());
    let tls = Tls { ca_file: Some(ca.clone()), client: Some(client), server_name: None };
    ServerFiles { ca, certificate: server.certificate, key: server.key, client: tls }
}
