//! The bundle in objects by which kube-apiserver calls servers: APIServices and webhook configurations.

use std::str::FromStr;

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::Value;

use super::error::Error;

/// The largest bundle of others that is kept beside ours, in bytes: it comes from an object of the cluster.
const FOREIGN_BYTES: usize = 64 << 10;
/// Begins a certificate in PEM.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// Ends a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";

/// Kinds of objects that have a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ApiService,
    Validating,
    Mutating,
}

impl Kind {
    const ALL: [(&'static str, Self); 3] = [
        ("apiservice", Self::ApiService),
        ("validatingwebhookconfiguration", Self::Validating),
        ("mutatingwebhookconfiguration", Self::Mutating),
    ];

    fn resource(self) -> ApiResource {
        let (group, kind) = match self {
            Self::ApiService => ("apiregistration.k8s.io", "APIService"),
            Self::Validating => ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
            Self::Mutating => ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
    }
}

/// Whether an object has a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// It has this one.
    Exactly,
    /// It has this one, and certificates of others behind it.
    WithOthers,
    /// It lacks a part of it.
    No,
}

/// An object that has the bundle of authorities, written `KIND/NAME` with the kind in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    kind: Kind,
    name: String,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = Kind::ALL.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(kind, _)| kind);
        write!(f, "{kind}/{}", self.name)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let kinds = Kind::ALL.map(|(kind, _)| kind).join(", ");
            format!("must be KIND/NAME, with one of the kinds {kinds}")
        };
        let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
        let kind = Kind::ALL.iter().find(|(known, _)| *known == kind).ok_or_else(wrong)?.1;
        Ok(Self { kind, name: name.to_owned() })
    }
}

impl Target {
    /// Sees to it that the object has this bundle. Unless `is_settled`, certificates of others stay in it: servers may still show what
    /// these have signed.
    ///
    /// # Errors
    /// Those of requests, and [`Error::Target`].
    pub(super) async fn publish(&self, client: &Client, bundle: &str, is_settled: bool) -> Result<(), Error> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.kind.resource());
        let mut object = api.get(&self.name).await.map_err(Error::of("read", self.to_string()))?;
        let changes = self.changes(&object, bundle, is_settled)?;
        if changes.is_empty() {
            return Ok(());
        }
        for (place, bundle) in changes {
            if let Some(Value::Object(fields)) = object.data.pointer_mut(&place) {
                fields.insert("caBundle".to_owned(), Value::String(bundle));
            }
        }
        // Over the version that was read: the list of webhooks may be another one by now.
        let written = api.replace(&self.name, &PostParams::default(), &object).await;
        written.map_err(Error::of("write the bundle of authorities into", self.to_string()))?;
        tracing::info!(object = %self, "the bundle of authorities is written");
        Ok(())
    }

    /// Whether the object has this bundle now.
    ///
    /// # Errors
    /// Those of requests, and [`Error::Target`].
    pub(super) async fn is_published(&self, client: &Client, bundle: &str) -> Result<Published, Error> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.kind.resource());
        let object = api.get(&self.name).await.map_err(Error::of("read", self.to_string()))?;
        if self.changes(&object, bundle, true)?.is_empty() {
            return Ok(Published::Exactly);
        }
        let has_all = self.changes(&object, bundle, false)?.is_empty();
        Ok(if has_all { Published::WithOthers } else { Published::No })
    }

    /// JSON pointers to what gets another bundle, each with its `caBundle`.
    pub(super) fn changes(
        &self,
        object: &DynamicObject,
        bundle: &str,
        is_settled: bool,
    ) -> Result<Vec<(String, String)>, Error> {
        let refused = |what| Err(Error::Target { object: self.to_string(), what });
        let places = match self.kind {
            Kind::ApiService if object.data.pointer("/spec/service").is_none_or(Value::is_null) => {
                return refused("kube-apiserver serves this group itself; name an APIService with a service");
            }
            Kind::ApiService
                if object.data.pointer("/spec/insecureSkipTLSVerify") == Some(&Value::Bool(true)) =>
            {
                return refused("spec.insecureSkipTLSVerify is true; remove that field");
            }
            Kind::ApiService => vec!["/spec".to_owned()],
            Kind::Validating | Kind::Mutating => {
                let webhooks = object.data.get("webhooks").and_then(Value::as_array).map_or(0, Vec::len);
                (0..webhooks).map(|index| format!("/webhooks/{index}/clientConfig")).collect()
            }
        };
        let change = |place: String| {
            let present = object.data.pointer(&format!("{place}/caBundle")).and_then(Value::as_str);
            let present = present.and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
            let present = String::from_utf8_lossy(&present);
            let wanted = if is_settled { bundle.to_owned() } else { with_foreign(bundle, &present) };
            (*present != wanted).then(|| (place, STANDARD.encode(&wanted)))
        };
        Ok(places.into_iter().filter_map(change).collect())
    }
}

/// A bundle, and behind it the certificates of another one that it lacks.
pub(super) fn with_foreign(bundle: &str, present: &str) -> String {
    let mut all = bundle.to_owned();
    let mut rest = &present[..present.floor_char_boundary(FOREIGN_BYTES)];
    while let Some(begin) = rest.find(BEGIN) {
        let Some(length) = rest[begin..].find(END) else { break };
        let (certificate, after) = rest[begin..].split_at(length + END.len());
        if !all.contains(certificate) {
            all = format!("{all}{certificate}\n");
        }
        rest = after;
    }
    all
}
