//! What a request is about: verb and resource, or verb and path.

use http::{Method, Uri};

/// The path at which all objects are backed up. It may take longer than other requests.
pub const BACKUP_PATH: &str = "/backup";
/// The path of the list of profiles. It is protected by authorization, as kube-apiserver's.
pub const PROFILING_PATH: &str = "/debug/pprof";
/// What the paths of profiles begin with.
pub const PROFILING_PREFIX: &str = "/debug/pprof/";
/// The path of a CPU profile, which takes as long as it was asked for.
pub const PROFILE_PATH: &str = "/debug/pprof/profile";

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method.
    pub verb: &'static str,
    /// The path as sent.
    pub path: String,
    /// The resource the path names, if it names one.
    pub target: Option<Target>,
    /// What a collection is narrowed down to, where that can be read; else empty.
    pub field_selector: String,
    /// The same by labels.
    pub label_selector: String,
}

/// What a resource path names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Target {
    /// API group in the path, such as `core.gardener.cloud`.
    pub group: String,
    /// API version in the path, such as `v1alpha1`.
    pub version: String,
    /// Plural name of the resource, such as `shootstates`.
    pub resource: String,
    /// Subresource, such as `status`; empty for the resource itself.
    pub subresource: String,
    /// Namespace in the path; empty where the path names none.
    pub namespace: String,
    /// Object name, or empty for the collection. For authorization also the name that a field selector singles out.
    pub name: String,
}

impl RequestInfo {
    /// Reads method and URI. `single_name`: the one name that the field selector asks for.
    #[must_use]
    pub fn parse(method: &Method, uri: &Uri, watch: bool) -> Self {
        let path = uri.path().to_owned();
        let target = parse_target(&path);
        let verb = match (&target, method) {
            (Some(target), _) => resource_verb(method, target, watch),
            (None, method) => path_verb(method),
        };
        let (field_selector, label_selector) = Default::default();
        Self { verb, path, target, field_selector, label_selector }
    }

    /// Whether the request may go on for longer than the deadline of all others.
    #[must_use]
    pub fn long_running(&self) -> bool {
        self.verb == "watch" || matches!(self.path.trim_end_matches('/'), BACKUP_PATH | PROFILE_PATH)
    }

    /// Whether the request may change something.
    #[must_use]
    pub fn mutating(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// `/apis/G/V/R…` and `/apis/G/V/namespaces/NS/R…`, percent-decoded. `/apis/G/V` names no resource.
fn parse_target(path: &str) -> Option<Target> {
    let mut segments = path.strip_prefix("/apis/")?.split('/').map(decode);
    let (group, version) = (segments.next()??, segments.next()??);
    let rest: Vec<String> = segments.collect::<Option<_>>()?;
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let (namespace, rest) = match rest[..] {
        ["namespaces", namespace, ref rest @ ..] if !rest.is_empty() => (namespace, rest.to_vec()),
        _ => ("", rest),
    };
    let (resource, name, subresource) = match rest[..] {
        [resource] | [resource, ""] => (resource, "", String::new()),
        [resource, name] => (resource, name, String::new()),
        [resource, name, ref subresource @ ..] => (resource, name, subresource.join("/")),
        [] => return None,
    };
    if group.is_empty() || version.is_empty() || resource.is_empty() {
        return None;
    }
    let (namespace, resource, name) = (namespace.to_owned(), resource.to_owned(), name.to_owned());
    Some(Target { group, version, resource, subresource, namespace, name })
}

fn resource_verb(method: &Method, target: &Target, watch: bool) -> &'static str {
    let collection = target.name.is_empty();
    match *method {
        Method::GET | Method::HEAD if watch => "watch",
        Method::GET | Method::HEAD if collection => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => path_verb(method),
    }
}

fn path_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

/// Percent-decodes a segment; `None`: it is malformed or hides a slash or a NUL.
pub(crate) fn decode(segment: &str) -> Option<String> {
    let plain = percent(segment, false)?;
    (!plain.contains(['/', '\0'])).then_some(plain)
}

/// Percent-decodes; in queries `+` stands for a space.
pub(crate) fn percent(text: &str, query: bool) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if query => b' ',
            other => other,
        });
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: Method, path: &str) -> RequestInfo {
        RequestInfo::parse(&method, &path.parse().expect("a URI"), path.contains("watch=true"))
    }

    fn target(namespace: &str, name: &str, subresource: &str) -> Option<Target> {
        Some(Target {
            group: "g".into(),
            version: "v1".into(),
            resource: "rs".into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
        })
    }

    #[test]
    fn reads_resource_paths() {
        for (method, path, verb, expected) in [
            (Method::GET, "/apis/g/v1/rs", "list", target("", "", "")),
            (Method::GET, "/apis/g/v1/rs?watch=true", "watch", target("", "", "")),
            (Method::GET, "/apis/g/v1/namespaces/n/rs", "list", target("n", "", "")),
            (Method::HEAD, "/apis/g/v1/namespaces/n/rs/a", "get", target("n", "a", "")),
            (Method::POST, "/apis/g/v1/namespaces/n/rs", "create", target("n", "", "")),
            (Method::PUT, "/apis/g/v1/namespaces/n/rs/a/status", "update", target("n", "a", "status")),
            (Method::DELETE, "/apis/g/v1/namespaces/n/rs", "deletecollection", target("n", "", "")),
            (Method::DELETE, "/apis/g/v1/namespaces/n/rs/a%2Db", "delete", target("n", "a-b", "")),
        ] {
            let found = info(method, path);
            assert_eq!((found.verb, found.target), (verb, expected), "{path}");
        }
    }

    #[test]
    fn other_paths_have_their_method_for_a_verb() {
        for (method, verb) in [
            (Method::GET, "get"),
            (Method::HEAD, "get"),
            (Method::POST, "post"),
            (Method::PUT, "put"),
            (Method::PATCH, "patch"),
            (Method::DELETE, "delete"),
        ] {
            assert_eq!(info(method, "/metrics").verb, verb);
        }
    }

    #[test]
    fn other_paths_name_no_resource() {
        for path in [
            "/",
            "/apis",
            "/apis/",
            "/apis/g",
            "/apis/g/v1",
            "/apis/g/v1/",
            "/healthz",
            "/apis/g/v1/a%2Fb",
            "/apis/g/v1/rs/%zz",
        ] {
            assert_eq!(info(Method::GET, path).target, None, "{path}");
        }
    }
}
