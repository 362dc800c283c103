//! The kubeconfig that `repot dev` hands out.

use base64::{Engine, engine::general_purpose::STANDARD};
use repot_certs::Leaf;

/// A kubeconfig for one server and one user, everything inline.
pub fn render(server: &str, authority_pem: &str, client: &Leaf) -> String {
    let encode = |pem: &str| STANDARD.encode(pem);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: repot
  cluster:
    server: {server}
    certificate-authority-data: {}
users:
- name: admin
  user:
    client-certificate-data: {}
    client-key-data: {}
contexts:
- name: repot
  context:
    cluster: repot
    user: admin
    namespace: default
current-context: repot
",
        encode(authority_pem),
        encode(&client.certificate_pem),
        encode(&client.key_pem)
    )
}
