//! Certificates that are issued anew at the destination, by the carried authorities.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use repot_api::names::CERTIFICATES;
use repot_certs::{Authority, LeafRequest};
use serde_json::Value;
use time::OffsetDateTime;

use super::bindings::{SeedFacts, fill};
use crate::{
    migration::error::{Error, Result},
    shootstate::{
        State,
        certificates::{CertificateRequest, CertificateUsage, requested},
        secrets::content,
    },
};

/// Key of an authority's Secret with its certificate, and the one with its private key (Gardener).
const AUTHORITY: (&str, &str) = ("ca.crt", "ca.key");

/// Puts the certificates into a Secret that it asks for.
///
/// # Errors
/// [`Error::Certificate`] where the annotation or the authority cannot be used; [`Error::Binding`] where a name asks for what is not
/// known here.
pub fn issue(secret: &mut Value, state: &State, facts: &SeedFacts) -> Result<()> {
    let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let failed = |why: String| Error::Certificate { secret: name.clone(), why };
    let requests =
        requested(secret).map_err(|error| failed(format!("annotation {CERTIFICATES}: {error}")))?;
    for request in requests {
        let names = names(&name, &request, facts)?;
        let authority = authority(state, &request.authority).map_err(&failed)?;
        let has = |usage| request.usages.contains(&usage);
        let asked = LeafRequest {
            common_name: &request.common_name,
            organization: request.organization.as_deref(),
            names: &names,
            server: has(CertificateUsage::Server),
            client: has(CertificateUsage::Client),
        };
        let leaf = authority.issue(&asked, OffsetDateTime::now_utc());
        let leaf = leaf.map_err(|error| failed(error.to_string()))?;
        secret["data"][&request.certificate] = STANDARD.encode(&leaf.certificate_pem).into();
        secret["data"][&request.key] = STANDARD.encode(&leaf.key_pem).into();
    }
    Ok(())
}

fn names(secret: &str, request: &CertificateRequest, facts: &SeedFacts) -> Result<Vec<String>> {
    let title = format!("Secret {secret}");
    let filled = request.names.iter().map(|name| fill(&title, "a certificate", name, facts));
    filled.collect::<Result<_, _>>().map_err(Error::Binding)
}

/// The authority of the persisted Secret with this label `name`; the newest, where one is being rotated.
fn authority(state: &State, name: &str) -> Result<Authority, String> {
    let is_it = |label: Option<&String>| label.map(String::as_str) == Some(name);
    let issued = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get("issued-at-time").and_then(|time| time.parse::<u64>().ok()).unwrap_or_default()
    };
    let found = state.secrets.iter().filter(|entry| is_it(entry.labels.get("name")));
    let found = found.max_by_key(|entry| issued(&entry.labels));
    let found = found.ok_or_else(|| format!("the ShootState has no authority {name}"))?;
    let content = content(found).map_err(|error| error.to_string())?;
    let value = |key: &str| {
        let bytes = content.data.get(key).and_then(|text| STANDARD.decode(text).ok());
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| format!("Secret {} has no {key}", found.name))
    };
    Authority::from_pem(&value(AUTHORITY.0)?, &value(AUTHORITY.1)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use repot_extension::RawJson;
    use serde_json::json;

    use super::*;
    use crate::shootstate::model::{GardenerEntry, TYPE_SECRET};

    fn state() -> State {
        let dir = tempfile::tempdir().expect("a directory");
        Authority::load_or_generate(dir.path(), "ca", "etcd", OffsetDateTime::now_utc())
            .expect("an authority");
        let file = |name: &str| STANDARD.encode(std::fs::read(dir.path().join(name)).expect("a file"));
        let data = json!({"type": "Opaque", "data": {"ca.crt": file("ca.crt"), "ca.key": file("ca.key")}});
        let entry = GardenerEntry {
            data: RawJson::encode(&data).expect("JSON"),
            labels: BTreeMap::from([("name".to_owned(), "ca-etcd".to_owned())]),
            name: "ca-etcd-1".to_owned(),
            kind: TYPE_SECRET.to_owned(),
        };
        State { secrets: vec![entry], ..State::default() }
    }

    fn issued(requests: &Value) -> Result<Value> {
        let mut secret = json!({
            "metadata": {"name": "etcd-server", "annotations": {CERTIFICATES: requests.to_string()}}, "data": {"kept": "eQ=="},
        });
        let facts = SeedFacts::from([("apiServer.address", Some("10.0.0.2".to_owned()))]);
        issue(&mut secret, &state(), &facts).map(|()| secret["data"].take())
    }

    #[test]
    fn certificate_has_the_names_and_addresses_of_the_destination() {
        let data = issued(&json!([{
            "authority": "ca-etcd", "commonName": "etcd", "names": ["etcd.svc", "${apiServer.address}"], "usages": ["server", "client"],
        }]));
        let data = data.expect("a certificate");
        assert_eq!(data["kept"], "eQ==");
        let text = |key: &str| {
            let bytes = STANDARD.decode(data[key].as_str().expect("a text")).expect("base64");
            String::from_utf8(bytes).expect("PEM")
        };
        assert!(text("tls.key").contains("PRIVATE KEY"));
        let certificate = text("tls.crt");
        let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).expect("PEM");
        let certificate = pem.parse_x509().expect("X.509");
        let names = certificate.subject_alternative_name().expect("an extension").expect("names");
        let names = format!("{:?}", names.value.general_names);
        assert!(names.contains("etcd.svc") && names.contains("[10, 0, 0, 2]"), "{names}");
        let usage = certificate.extended_key_usage().expect("an extension").expect("usages").value;
        assert!(usage.server_auth && usage.client_auth);
    }

    #[test]
    fn what_cannot_be_issued_is_said_without_a_key() {
        let told = |requests: Value| issued(&requests).expect_err("it cannot be issued").to_string();
        let of = |authority: &str, name: &str| json!([{"authority": authority, "commonName": "etcd", "names": [name], "usages": ["server"]}]);
        assert_eq!(
            told(of("ca-other", "a")),
            "certificates of Secret etcd-server cannot be issued: the ShootState has no authority ca-other"
        );
        let unknown = told(of("ca-etcd", "${zone}"));
        assert!(unknown.contains("asks for zone, which is no fact of a seed"), "{unknown}");
        let wrong = told(json!({"authority": "ca-etcd"}));
        assert!(wrong.contains("annotation migration.gardener.cloud/certificates: invalid type"), "{wrong}");
        let misspelt = told(json!([{"authority": "ca-etcd", "commonName": "a", "usages": [], "host": "b"}]));
        assert!(misspelt.contains("unknown field `host`"), "{misspelt}");
    }
}
