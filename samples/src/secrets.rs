//! Secrets of the control plane namespace with the labels that gardenlet selects them by after a move.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::random::Random;

/// When all rotations of these states took place, in seconds since 1970; single ones differ by hours.
const ROTATED: usize = 1_790_000_000;
const TEN_YEARS: usize = 315_360_000;
/// Lengths of an RSA-2048 key and of a certificate for one, in characters of base64 between the PEM lines.
const KEY: usize = 1588;
const CERTIFICATE: usize = 1060;

/// The certificate authorities of a Shoot's control plane.
const AUTHORITIES: [&str; 8] = [
    "ca",
    "ca-client",
    "ca-etcd",
    "ca-etcd-peer",
    "ca-kubelet",
    "ca-metrics-server",
    "ca-front-proxy",
    "ca-vpn",
];

/// Entries of `spec.gardener` of type `secret`, small ones first, until they have about so many bytes of JSON.
pub fn render(random: &mut Random, bytes: usize) -> Vec<Value> {
    let mut entries = Vec::new();
    let mut size = 0;
    let mut index = 0;
    while size < bytes {
        for entry in group(random, index) {
            size += entry.to_string().len();
            entries.push(entry);
        }
        index += 1;
    }
    entries
}

/// The secrets of one purpose: first the fixed ones, then as many of extensions' secrets managers as are asked for.
fn group(random: &mut Random, index: usize) -> Vec<Value> {
    match index {
        0 => vec![encryption_key(random)],
        1 => vec![static_token(random)],
        2 => vec![service_account_key(random)],
        3 => vec![ssh_keypair(random)],
        4..12 => authority(random, AUTHORITIES[index - 4], "gardenlet"),
        12 => vec![os_config_hashes(random)],
        _ => authority(random, &format!("ca-extension-{index}"), &format!("extension-{}", index % 7)),
    }
}

/// A CA, the bundle that clients trust, and nothing that can be made again from them.
fn authority(random: &mut Random, name: &str, manager: &str) -> Vec<Value> {
    let certificate = pem(random, "CERTIFICATE", CERTIFICATE);
    let key = pem(random, "RSA PRIVATE KEY", KEY);
    let mut labels = labels(random, name, manager);
    labels.insert("rotation-strategy".into(), "keepold".into());
    let issued: usize = ROTATED + random.below(86_400);
    labels.insert("issued-at-time".into(), issued.to_string().into());
    labels.insert("valid-until-time".into(), (issued + TEN_YEARS).to_string().into());
    let suffix = random.hex(8);
    let data = [("ca.crt", certificate.clone()), ("ca.key", key)];
    let ca = entry(&format!("{name}-{suffix}"), labels.clone(), &data);
    labels.remove("rotation-strategy");
    labels.insert("bundle-for".into(), name.into());
    labels.insert("checksum-of-signing-ca".into(), random.hex(64).into());
    labels.insert("name".into(), format!("{name}-bundle").into());
    let bundle = entry(&format!("{name}-bundle-{suffix}"), labels, &[("bundle.crt", certificate)]);
    vec![ca, bundle]
}

fn encryption_key(random: &mut Random) -> Value {
    let name = "kube-apiserver-etcd-encryption-key";
    let mut labels = labels(random, name, "gardenlet");
    labels.insert("rotation-strategy".into(), "keepold".into());
    let data = [("key", format!("key{ROTATED}")), ("encoding", "none".into()), ("secret", random.base64(44))];
    entry(&format!("{name}-{}", random.hex(8)), labels, &data)
}

fn service_account_key(random: &mut Random) -> Value {
    let labels = labels(random, "service-account-key", "gardenlet");
    let data = [("id_rsa", pem(random, "RSA PRIVATE KEY", KEY))];
    entry(&format!("service-account-key-{}", random.hex(8)), labels, &data)
}

fn static_token(random: &mut Random) -> Value {
    let labels = labels(random, "kube-apiserver-static-token", "gardenlet");
    let line = format!("{},health-check,health-check,", random.hex(128));
    entry(&format!("kube-apiserver-static-token-{}", random.hex(8)), labels, &[("static_tokens.csv", line)])
}

fn ssh_keypair(random: &mut Random) -> Value {
    let labels = labels(random, "ssh-keypair", "gardenlet");
    let key = pem(random, "RSA PRIVATE KEY", 2 * KEY);
    let public = format!("ssh-rsa {}\n", random.base64(716));
    let name = format!("ssh-keypair-{}", random.hex(8));
    entry(&name, labels, &[("id_rsa", key), ("id_rsa.pub", public)])
}

/// One that no secrets manager wrote: only the label that asks for keeping it.
fn os_config_hashes(random: &mut Random) -> Value {
    let labels = Map::from_iter([("persist".to_owned(), "true".into())]);
    let pools: String = (0..8)
        .map(|pool| format!("pool-{pool}:\n  currentVersion: 2\n  hash: {}\n", random.hex(16)))
        .collect();
    entry("worker-pools-operatingsystemconfig-hashes", labels, &[("pools", pools)])
}

fn labels(random: &mut Random, name: &str, manager: &str) -> Map<String, Value> {
    let rotated = (ROTATED + random.below(86_400)).to_string();
    Map::from_iter([
        ("name".to_owned(), name.into()),
        ("managed-by".to_owned(), "secrets-manager".into()),
        ("manager-identity".to_owned(), manager.into()),
        ("checksum-of-config".to_owned(), random.bits().to_string().into()),
        ("last-rotation-initiation-time".to_owned(), rotated.into()),
        ("persist".to_owned(), "true".into()),
    ])
}

fn entry(name: &str, labels: Map<String, Value>, data: &[(&str, String)]) -> Value {
    json!({
        "name": name, "type": "secret", "labels": labels,
        "data": { "data": encode(data), "immutable": true, "type": "Opaque" },
    })
}

/// The `data` of a Secret: values in base64.
pub fn encode(data: &[(&str, String)]) -> Value {
    data.iter()
        .map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text).into()))
        .collect::<Map<_, _>>()
        .into()
}

/// PEM around so many random characters: like real keys, base64 of what looks like noise.
pub fn pem(random: &mut Random, what: &str, characters: usize) -> String {
    let body = random.base64(characters);
    let mut text = format!("-----BEGIN {what}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {what}-----\n")
}
