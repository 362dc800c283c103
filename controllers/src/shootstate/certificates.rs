//! Certificates of carried Secrets that are issued anew where the Secret is made: what can be derived from a carried authority is not
//! carried. Pure.

use repot_api::names::CERTIFICATES;
use repot_apimachinery::json::Node;
use serde::Deserialize;
use serde_json::Value;

/// One certificate of a Secret, as annotation [`CERTIFICATES`] says it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateRequest {
    /// Label `name` of the persisted Secret with the authority, in its keys `ca.crt` and `ca.key`.
    pub authority: String,
    /// Common name of the subject.
    pub common_name: String,
    /// Organization of the subject, if there is one.
    #[serde(default)]
    pub organization: Option<String>,
    /// DNS names and IP addresses, in which `${fact}` stands for a fact of the destination.
    #[serde(default)]
    pub names: Vec<String>,
    /// Who shows the certificate.
    pub usages: Vec<CertificateUsage>,
    /// Key of the Secret that gets the certificate, PEM.
    #[serde(default = "certificate_key")]
    pub certificate: String,
    /// Key of the Secret that gets the private key, PEM.
    #[serde(default = "private_key")]
    pub key: String,
}

/// Who shows a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CertificateUsage {
    /// A server.
    Server,
    /// A client.
    Client,
}

fn certificate_key() -> String {
    "tls.crt".to_owned()
}

fn private_key() -> String {
    "tls.key".to_owned()
}

/// The certificates that an annotation asks for.
///
/// # Errors
/// What is wrong with it.
pub fn parse(annotation: &str) -> Result<Vec<CertificateRequest>, serde_json::Error> {
    serde_json::from_str(annotation)
}

/// The certificates that a Secret asks for; none where it has no annotation.
///
/// # Errors
/// What is wrong with the annotation.
pub fn requested(secret: &Value) -> Result<Vec<CertificateRequest>, serde_json::Error> {
    let annotations = secret.pointer("/metadata/annotations");
    match annotations.and_then(|all| all.get(CERTIFICATES)?.as_str()) {
        Some(annotation) => parse(annotation),
        None => Ok(Vec::new()),
    }
}

/// Takes the certificates and keys out of a Secret that are issued anew. Where the annotation cannot be read, no data is carried at all:
/// nothing is carried that was not to be, and the destination says what is wrong before the outage.
pub fn strip(secret: &mut Node) {
    let annotation = secret.member("metadata").and_then(|metadata| {
        let text = metadata.member("annotations")?.member(CERTIFICATES)?.to_raw();
        serde_json::from_slice::<String>(text.bytes()).ok()
    });
    let Some(annotation) = annotation else { return };
    let Ok(requests) = parse(&annotation) else {
        secret.take("data");
        return;
    };
    let Some(data) = secret.member_mut("data") else { return };
    data.open();
    for request in requests {
        data.take(&request.certificate);
        data.take(&request.key);
    }
}
