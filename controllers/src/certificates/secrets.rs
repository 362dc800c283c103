//! Secrets that this controller owns: by a label, so that nothing of others is overwritten.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, ResourceExt, api::PostParams};
use repot_api::names::MANAGED_BY;

use super::error::Error;

/// Value of the label on all Secrets that are written here.
const MANAGER: &str = "repot-certs";

/// The Secret of that name, if there is one.
///
/// # Errors
/// [`Error::Foreign`] where it belongs to somebody else, and those of the request.
pub(super) async fn read(secrets: &Api<Secret>, name: &str) -> Result<Option<Secret>, Error> {
    let found = secrets.get_opt(name).await.map_err(Error::of("read", format!("Secret {name}")))?;
    match found {
        Some(secret) if secret.labels().get(MANAGED_BY).is_none_or(|manager| manager != MANAGER) => {
            Err(Error::Foreign(name.to_owned()))
        }
        found => Ok(found),
    }
}

/// An empty Secret of our own.
pub(super) fn new(name: &str, kind: &str) -> Secret {
    let mut secret = Secret { type_: Some(kind.to_owned()), ..Secret::default() };
    secret.metadata.name = Some(name.to_owned());
    secret.labels_mut().insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    secret
}

/// Creates it, or writes it over the version that it was read as.
///
/// # Errors
/// Those of the request: a conflict where it has changed since.
pub(super) async fn write(secrets: &Api<Secret>, secret: &Secret) -> Result<Secret, Error> {
    let (name, params) = (secret.name_any(), PostParams::default());
    let written = match secret.metadata.resource_version {
        None => secrets.create(&params, secret).await,
        Some(_) => secrets.replace(&name, &params, secret).await,
    };
    written.map_err(Error::of("write", format!("Secret {name}")))
}

/// A value as text; empty where there is none, or where it is no text.
pub(super) fn text<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.and_then(|value| std::str::from_utf8(&value.0).ok()).unwrap_or_default()
}

/// Values of a Secret.
pub(super) fn data<'a>(
    values: impl IntoIterator<Item = (String, &'a str)>,
) -> Option<BTreeMap<String, ByteString>> {
    Some(values.into_iter().map(|(key, value)| (key, ByteString(value.as_bytes().to_vec()))).collect())
}
