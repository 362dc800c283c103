//! The envelope: signatures by Ed25519 over the payload and its type.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const TYPE: &str = "application/vnd.repot.migration-evidence+json";
/// What stands before the 32 bytes of a public key of Ed25519 as DER (RFC 8410).
const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Most signatures of one envelope.
const MOST_SIGNATURES: usize = 64;

/// An envelope cannot be made or is not to be believed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// No key of this form.
    #[error("no {0} key of Ed25519 in PEM; make one by `openssl genpkey -algorithm ed25519`")]
    Key(&'static str),
    /// The file is no envelope.
    #[error("no envelope of evidence: {0}")]
    Form(String),
    /// Nobody has signed whose key was given.
    #[error("no signature is of the given key: the file was changed, or somebody else has signed it")]
    Signature,
}

/// A signed payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    payload_type: String,
    payload: String,
    signatures: Vec<Signature>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Signature {
    #[serde(default)]
    keyid: String,
    sig: String,
}

/// Who signs.
pub struct PrivateKey(Ed25519KeyPair);

/// Whose signatures are believed.
pub struct PublicKey(Vec<u8>);

impl PrivateKey {
    /// Reads a key in PKCS#8 as PEM.
    ///
    /// # Errors
    /// [`Error::Key`]; it never quotes the text.
    pub fn read(pem: &str) -> Result<Self, Error> {
        let der = der(pem, "PRIVATE KEY").ok_or(Error::Key("private"))?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der);
        pair.map(Self).map_err(|_| Error::Key("private"))
    }

    /// The key that believes its signatures.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key().as_ref().to_vec())
    }
}

impl PublicKey {
    /// Reads a key as PEM, as `openssl pkey -pubout` writes it.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn read(pem: &str) -> Result<Self, Error> {
        let der = der(pem, "PUBLIC KEY").ok_or(Error::Key("public"))?;
        let key = der.strip_prefix(&PREFIX).filter(|key| key.len() == 32);
        key.map(|key| Self(key.to_vec())).ok_or(Error::Key("public"))
    }

    /// The first bytes of the key in hexadecimal digits. It says who may have signed, and proves nothing.
    #[must_use]
    pub fn id(&self) -> String {
        self.0.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Envelope {
    /// Signs a payload.
    #[must_use]
    pub fn sign(payload: &Value, key: &PrivateKey) -> Self {
        let body = payload.to_string();
        let signature = key.0.sign(&encoded(body.as_bytes()));
        Self {
            payload_type: TYPE.to_owned(),
            payload: STANDARD.encode(body),
            signatures: vec![Signature {
                keyid: key.public().id(),
                sig: STANDARD.encode(signature.as_ref()),
            }],
        }
    }

    /// Reads an envelope.
    ///
    /// # Errors
    /// [`Error::Form`].
    pub fn read(text: &str) -> Result<Self, Error> {
        let envelope: Self = serde_json::from_str(text).map_err(|error| Error::Form(error.to_string()))?;
        if envelope.payload_type != TYPE {
            return Err(Error::Form(format!("its payloadType is not {TYPE}")));
        }
        if envelope.signatures.len() > MOST_SIGNATURES {
            return Err(Error::Form(format!("it has more than {MOST_SIGNATURES} signatures")));
        }
        Ok(envelope)
    }

    /// The payload, if this key has signed it.
    ///
    /// # Errors
    /// [`Error::Signature`], [`Error::Form`].
    pub fn open(&self, key: &PublicKey) -> Result<Value, Error> {
        let form = |error: &dyn std::fmt::Display| Error::Form(error.to_string());
        let body = STANDARD.decode(&self.payload).map_err(|error| form(&error))?;
        let (signed, public) = (encoded(&body), UnparsedPublicKey::new(&ED25519, &key.0));
        let mut signatures = self.signatures.iter().filter_map(|one| STANDARD.decode(&one.sig).ok());
        if !signatures.any(|signature| public.verify(&signed, &signature).is_ok()) {
            return Err(Error::Signature);
        }
        serde_json::from_slice(&body).map_err(|error| form(&error))
    }
}

/// What is signed: type and payload with their lengths, so that neither can be read as the other.
fn encoded(body: &[u8]) -> Vec<u8> {
    let mut encoded = format!("DSSEv1 {} {TYPE} {} ", TYPE.len(), body.len()).into_bytes();
    encoded.extend_from_slice(body);
    encoded
}

/// The bytes of the first block of PEM with this label.
fn der(pem: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use serde_json::json;

    use super::*;

    /// A new key, as openssl writes it, and its public one.
    fn keys() -> (String, String) {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
        let public = [&PREFIX[..], pair.public_key().as_ref()].concat();
        (pem("PRIVATE KEY", document.as_ref()), pem("PUBLIC KEY", &public))
    }

    fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    }

    fn signed() -> (Envelope, PublicKey) {
        let (private, public) = keys();
        let key = PrivateKey::read(&private).expect("a private key");
        assert_eq!(key.public().id(), PublicKey::read(&public).expect("a public key").id());
        let envelope = Envelope::sign(&json!({"a": 1}), &key);
        (envelope, PublicKey::read(&public).expect("a public key"))
    }

    #[test]
    fn payload_comes_back_for_the_key_that_has_signed() {
        let (envelope, key) = signed();
        let text = serde_json::to_string(&envelope).expect("JSON");
        assert_eq!(Envelope::read(&text).and_then(|read| read.open(&key)), Ok(json!({"a": 1})));
    }

    #[test]
    fn changed_payload_type_signature_and_key_are_refused() {
        let (envelope, key) = signed();
        let payload = Envelope { payload: STANDARD.encode("{\"a\":2}"), ..envelope.clone() };
        assert_eq!(payload.open(&key), Err(Error::Signature));
        let none = Envelope { signatures: Vec::new(), ..envelope.clone() };
        assert_eq!(none.open(&key), Err(Error::Signature));
        let other = PublicKey(vec![7; 32]);
        assert_eq!(envelope.open(&other), Err(Error::Signature));
        let text = serde_json::to_string(&Envelope { payload_type: "text/plain".to_owned(), ..envelope });
        assert!(matches!(Envelope::read(&text.expect("JSON")), Err(Error::Form(_))));
    }

    #[test]
    fn text_that_is_no_key_is_not_quoted() {
        let (private, public) = keys();
        for text in ["", "-----BEGIN PRIVATE KEY-----\nsecret", &public] {
            let refused = PrivateKey::read(text).err().expect("a refusal").to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert_eq!(PublicKey::read(&private).err(), Some(Error::Key("public")));
    }
}
