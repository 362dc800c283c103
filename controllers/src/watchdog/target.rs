//! What a request is about, by its method and path, as kube-apiserver reads them. Pure.
//!
//! A path that kube-apiserver or a server behind it could read in another way is refused: what is judged has to be what is done.

use http::Method;

/// Subresources that open a connection to a Pod, a Service or a Node: a read of them may have any effect.
const CONNECT: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
/// Resources that have these subresources.
const CONNECTED: [&str; 3] = ["nodes", "pods", "services"];
/// Subresources of a Namespace. Everything else below a Namespace is a resource in it.
const OF_NAMESPACE: [&str; 2] = ["finalize", "status"];
/// Groups whose objects are questions: they are created, and nothing is stored.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// What a request that may be forwarded is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// It reads.
    Read,
    /// It creates a question, such as a SelfSubjectAccessReview.
    Review,
    /// It writes in a Namespace, or the Namespace itself.
    Namespace {
        /// The Namespace.
        namespace: String,
        /// What of it.
        part: Part,
    },
    /// It writes an object in no Namespace.
    Cluster(String),
    /// It creates an object in no Namespace, whose name is in the body.
    NewInCluster,
}

/// What a request writes of a Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The Namespace.
    Itself,
    /// A new object, or all objects of a kind.
    Collection,
    /// An object in it.
    Object(ObjectPath),
}

/// An object in a Namespace, as a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPath {
    /// API group; empty for the core group.
    pub group: String,
    /// Version of the API, such as `v1`.
    pub version: String,
    /// Plural name of the kind.
    pub resource: String,
    /// Name of the object.
    pub name: String,
}

/// Why a request is not forwarded, whoever owns the Shoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotForwarded {
    /// The path has more than one reading.
    #[error("the path is not forwarded: {0}")]
    Path(&'static str),
    /// A method without a meaning in the API.
    #[error("the method is not forwarded: only GET, HEAD, OPTIONS, POST, PUT, PATCH and DELETE are")]
    Method,
    /// A write outside of the API.
    #[error("only reads are forwarded outside of /api and /apis")]
    OutsideOfApi,
    /// A connection to a Pod, a Service or a Node.
    #[error(
        "attach, exec, portforward and proxy are not forwarded: what they do cannot be fenced; use the kube-apiserver itself"
    )]
    Connect,
    /// A deletion of many objects in no Namespace.
    #[error("a deletion of a collection in no Namespace is not forwarded: delete the objects by their names")]
    ClusterCollection,
}

/// Says what a request is about.
///
/// # Errors
/// [`NotForwarded`].
pub fn target(method: &Method, path: &str) -> Result<Target, NotForwarded> {
    let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    if !is_read && ![Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method) {
        return Err(NotForwarded::Method);
    }
    let segments = segments(path)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ if is_read => return Ok(Target::Read),
        _ => return Err(NotForwarded::OutsideOfApi),
    };
    let (rest, is_watch) = match rest {
        ["proxy", ..] => return Err(NotForwarded::Connect),
        ["watch", rest @ ..] => (rest, true),
        _ => (rest, false),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
        _ => (None, rest),
    };
    let is_connect = |resource: &&str, sub: &&str| CONNECTED.contains(resource) && CONNECT.contains(sub);
    if let [resource, _, sub, ..] = rest
        && is_connect(resource, sub)
    {
        return Err(NotForwarded::Connect);
    }
    if is_read {
        return Ok(Target::Read);
    }
    if is_watch {
        return Err(NotForwarded::Path("a watch is read with GET"));
    }
    if REVIEWS.contains(&group) && method == Method::POST {
        return Ok(Target::Review);
    }
    match namespace {
        Some(namespace) => Ok(in_namespace(group, version, namespace, rest)),
        None => in_cluster(method, rest),
    }
}

fn in_namespace(group: &str, version: &str, namespace: &str, rest: &[&str]) -> Target {
    let part = match rest {
        [] => Part::Itself,
        [sub] if OF_NAMESPACE.contains(sub) => Part::Itself,
        [_] => Part::Collection,
        [resource, name, ..] => Part::Object(ObjectPath {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: (*resource).to_owned(),
            name: (*name).to_owned(),
        }),
    };
    Target::Namespace { namespace: namespace.to_owned(), part }
}

fn in_cluster(method: &Method, rest: &[&str]) -> Result<Target, NotForwarded> {
    match rest {
        [_, name, ..] => Ok(Target::Cluster((*name).to_owned())),
        [_] if method == Method::DELETE => Err(NotForwarded::ClusterCollection),
        [_] => Ok(Target::NewInCluster),
        [] => Err(NotForwarded::Path("it names no resource")),
    }
}

/// The segments of a path, decoded once as Go decodes them.
fn segments(path: &str) -> Result<Vec<String>, NotForwarded> {
    let inner = path.strip_prefix('/').ok_or(NotForwarded::Path("it does not begin with /"))?;
    // Discovery is asked for at `/api/` too; kube-apiserver drops one slash at the end.
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    inner.split('/').map(segment).collect()
}

fn segment(raw: &str) -> Result<String, NotForwarded> {
    let decoded = decode(raw).ok_or(NotForwarded::Path("its percent-encoding is broken"))?;
    match decoded.as_str() {
        "" => Err(NotForwarded::Path("it has an empty segment")),
        "." | ".." => Err(NotForwarded::Path("it has a segment . or ..")),
        text if text.contains(['/', '\\', '%']) => {
            Err(NotForwarded::Path("it has an encoded slash, backslash or percent sign"))
        }
        text if !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(NotForwarded::Path("it has characters that names of Kubernetes do not have"))
        }
        _ => Ok(decoded),
    }
}

fn decode(raw: &str) -> Option<String> {
    let mut bytes = raw.bytes();
    let mut decoded = Vec::with_capacity(raw.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
#[path = "tests/target.rs"]
mod tests;
