//! Where a list goes on: the token that `continue` carries.

use base64::Engine;
use repot_storage::{Key, ResourceVersion};
use serde::{Deserialize, Serialize};

use super::Request;
use crate::status::Status;

/// Where a page ended. Bound to what is listed; the same on every replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Continue {
    /// Version of the list; zero: whatever is newest.
    version: u64,
    resource: String,
    scope: String,
    namespace: String,
    name: String,
}

impl Continue {
    pub(super) fn new(request: &Request<'_>, version: ResourceVersion, last: &Key) -> Self {
        Self {
            version: version.0,
            resource: request.resource.name.to_string(),
            scope: request.target.namespace.clone(),
            namespace: last.namespace.clone(),
            name: last.name.clone(),
        }
    }

    pub(super) fn encode(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
    }

    pub(super) fn decode(text: &str, request: &Request<'_>) -> Result<Self, Status> {
        let token = Self::parse(text, &request.resource.name.to_string(), &request.target.namespace);
        token.ok_or_else(|| Status::bad_request("continue key is not valid"))
    }

    /// A token, if it is one of a list of these.
    fn parse(text: &str, resource: &str, scope: &str) -> Option<Self> {
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok();
        let token: Option<Self> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let fits = |token: &Self| {
            token.resource == resource
                && token.scope == scope
                && (token.scope.is_empty() || token.scope == token.namespace)
                && !token.name.contains(['/', '\0'])
                && !token.namespace.contains(['/', '\0'])
        };
        token.filter(fits)
    }

    pub(super) fn at(&self) -> Option<ResourceVersion> {
        (self.version > 0).then_some(ResourceVersion(self.version))
    }

    pub(super) fn after(&self, request: &Request<'_>) -> Key {
        Key { namespace: self.namespace.clone(), name: self.name.clone(), ..request.key_of("") }
    }

    pub(super) fn inconsistent(&self) -> Self {
        Self { version: 0, ..self.clone() }
    }
}

/// Any text is refused or a token; a token is one of the list that was asked for, and printed as it is read.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn attempt(input: &[u8]) {
    let resource = "shootstates.core.gardener.cloud";
    let Ok(text) = std::str::from_utf8(input) else { return };
    for scope in ["", "ns"] {
        let Some(token) = Continue::parse(text, resource, scope) else { continue };
        assert!(token.resource == resource && token.scope == scope);
        assert!(!token.name.contains('/') && !token.namespace.contains('/'));
        let again = Continue::parse(&token.encode(), resource, scope).map(|token| token.encode());
        assert_eq!(again, Some(token.encode()));
    }
}
