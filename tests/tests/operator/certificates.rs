use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::pki::{Ca, Leaf, Usage};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{Place, spec};

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<_, _> =
        data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})
}

fn leaf(name: &str, leaf: &Leaf) -> Value {
    secret(name, &[("tls.crt", &leaf.cert_pem), ("tls.key", &leaf.key_pem)])
}

#[test]
fn members_agents_and_operator_show_each_other_certificates() {
    run(async |_| {
        let place = Place::make("operator-tls").await?;
        let (clients, peers) = (Ca::new("etcd-ca")?, Ca::new("etcd-peer-ca")?);
        let mut names: Vec<String> =
            (0..3).map(|at| format!("main-{at}.main-peer.operator-tls.svc")).collect();
        names.extend(["main-client.operator-tls.svc".to_owned(), "localhost".to_owned()]);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        place
            .pods
            .apply(&[
                secret("ca", &[("bundle.crt", &clients.pem())]),
                secret("peer-ca", &[("ca.crt", &peers.pem())]),
                leaf("server", &clients.leaf("etcd", &[], &names, Usage::Peer)?),
                leaf("client", &clients.client("etcd-client", &[])?),
                leaf("peer", &peers.leaf("etcd-peer", &[], &names, Usage::Peer)?),
            ])
            .await?;
        let mut wanted = spec(3);
        wanted["etcd"]["clientUrlTls"] = json!({
            "tlsCASecretRef": {"name": "ca", "dataKey": "bundle.crt"}, "serverTLSSecretRef": {"name": "server"},
            "clientTLSSecretRef": {"name": "client"},
        });
        wanted["etcd"]["peerUrlTls"] =
            json!({"tlsCASecretRef": {"name": "peer-ca"}, "serverTLSSecretRef": {"name": "peer"}});
        place.apply(wanted).await?;
        place.until_members(3, "main").await?;
        // Ids are known by those who were let in.
        let known = |status: &Value| {
            let members = status["members"].as_array();
            members.is_some_and(|members| members.iter().all(|member| member["id"].is_string()))
        };
        let etcd = place.until("ids of members", known).await?;
        ensure!(etcd["status"]["peerUrlTLSEnabled"] == true, "{}", etcd["status"]);
        ensure!(place.member(0).await?.ctl(&["get", "a"]).await.is_err(), "it speaks without TLS");
        Ok(())
    });
}
