//! One request on its way through the chain, and what endpoints read from it.

use std::{collections::BTreeMap, time::Instant};

use axum::body::Body;
use http::{HeaderMap, Method, Request, Version};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::{
    audit::{AuditedRequest, Facts, Trail},
    filters::{
        client_certificate::Peer,
        overload::InflightPermit,
        request_info::{RequestInfo, percent},
        user::User,
    },
    memory::MemoryPermit,
    status::Status,
};

/// The parameters after `?`.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Result<Self, Status> {
        let malformed = || Status::bad_request("the query of the URL is not percent-encoded UTF-8");
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            Some((percent(key, true)?, percent(value, true)?))
        };
        let parts = text.split('&').filter(|part| !part.is_empty());
        parts.map(|part| pair(part).ok_or_else(malformed)).collect::<Result<_, _>>().map(Self)
    }

    /// The first value of a parameter; an empty one counts as absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter, also an empty one; `None`: it is absent.
    #[must_use]
    pub fn present(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A boolean parameter; absent is false.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.maybe_flag(name).unwrap_or(false)
    }

    /// A boolean parameter, or that it is absent. Everything but `0` and `false` counts as true, also nothing at all, as in
    /// apimachinery's `Convert_Slice_string_To_bool`.
    #[must_use]
    pub fn maybe_flag(&self, name: &str) -> Option<bool> {
        self.present(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A whole number. An empty value is none.
    ///
    /// # Errors
    /// 400.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let wrong = |text: &str| Status::bad_request(format!("{name}: {text:?} is no whole number"));
        self.present(name).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
    }
}

/// What is learned about a request on its way.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// For the client, as `Warning` headers, also where the request fails.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub annotations: Vec<(String, String)>,
    /// Name of the object that was created, for the audit log.
    pub created: Option<String>,
}

/// One HTTP request, with what is learned about it while it is handled.
pub struct Call {
    /// HTTP method of the request.
    pub method: Method,
    /// Version of HTTP in which it came.
    pub version: Version,
    /// What it is about.
    pub info: RequestInfo,
    /// Query parameters of the request's URI.
    pub query: Query,
    /// Headers; those that assert identities are taken out by authentication.
    pub headers: HeaderMap,
    /// Who makes it; anonymous until authentication is through.
    pub user: User,
    /// Ties the logs of all servers together that saw the request.
    pub audit_id: String,
    /// When the request came, by the monotonic clock.
    pub began: Instant,
    /// The body, until it is read. (A body is not `Sync`; the lock makes a call so, and is never contended.)
    pub body: parking_lot::Mutex<Body>,
    /// What was learned on the way.
    pub notes: parking_lot::Mutex<Notes>,
    /// Places that the request takes until its answer is sent.
    pub held: Vec<InflightPermit>,
    /// Room in memory that it has until its answer is sent.
    pub room: parking_lot::Mutex<Option<MemoryPermit>>,
    /// Who is at the other end of the connection.
    pub peer: std::sync::Arc<Peer>,
    /// Path and parameters as sent.
    pub uri: String,
    /// When it came, by the clock on the wall.
    pub received: jiff::Timestamp,
    /// What the audit log is to say about it beside the ordinary.
    pub annotations: BTreeMap<String, String>,
    /// What is recorded of it, from when its user is known.
    pub trail: Option<Trail>,
    /// A stop waits for it, as long as it is there.
    pub being_answered: Option<TaskTrackerToken>,
    /// What is traced of it; disabled where it is not traced.
    pub span: tracing::Span,
}

impl Call {
    /// Reads the head of a request.
    ///
    /// # Errors
    /// 400 with the malformed part; the audit id comes with it, so that the failure can be found.
    pub fn begin(request: Request<Body>, peer: std::sync::Arc<Peer>) -> Result<Self, (Status, String)> {
        let (parts, body) = request.into_parts();
        let audit_id = audit_id(&parts.headers);
        let failed = |status| (status, audit_id.clone());
        let query = Query::parse(parts.uri.query().unwrap_or_default()).map_err(failed)?;
        let watch = query.flag("watch");
        let mut info = RequestInfo::parse(&parts.method, &parts.uri, watch);
        single_out(&mut info, &query);
        let uri = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        Ok(Self {
            method: parts.method,
            version: parts.version,
            info,
            query,
            headers: parts.headers,
            user: User::anonymous(),
            audit_id,
            began: Instant::now(),
            body: parking_lot::Mutex::new(body),
            notes: parking_lot::Mutex::default(),
            held: Vec::new(),
            room: parking_lot::Mutex::default(),
            peer,
            uri,
            received: jiff::Timestamp::now(),
            annotations: BTreeMap::new(),
            trail: None,
            being_answered: None,
            span: tracing::Span::none(),
        })
    }

    /// Keeps what was decided about the request, and why, for the audit log.
    pub fn note_decision(&mut self, decision: &Result<String, Status>) {
        let (decision, reason) = match decision {
            Ok(reason) => ("allow", reason.clone()),
            Err(status) if status.reason() == "Forbidden" => ("forbid", status.to_string()),
            // Nobody decided.
            Err(_) => return,
        };
        self.annotations.insert("authorization.k8s.io/decision".into(), decision.into());
        self.annotations.insert("authorization.k8s.io/reason".into(), reason);
    }

    /// What the audit log says of the request, before it is answered.
    pub(crate) fn audited(&self) -> AuditedRequest<'_> {
        let Self { audit_id, uri, info, user, headers, received, .. } = self;
        AuditedRequest { audit_id, uri, info, user, headers, peer: self.peer.address, received: *received }
    }

    /// What the audit log says that the request learned on its way.
    pub(crate) fn audit_facts(&self) -> Facts {
        let notes = self.notes.lock();
        let mut annotations = self.annotations.clone();
        annotations.extend(notes.annotations.iter().cloned());
        Facts { annotations, created: notes.created.clone() }
    }

    /// The length of the body, where the client announced it.
    #[must_use]
    pub fn announced(&self) -> Option<u64> {
        http_body::Body::size_hint(&*self.body.lock()).upper()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A request that is answered hands its trail over before.
        if let Some(trail) = self.trail.take() {
            trail.abandon(self.audit_facts());
        }
    }
}

/// The id under which the front server knows the request, if it can be one; else a new one.
fn audit_id(headers: &HeaderMap) -> String {
    let given = headers.get("audit-id").and_then(|value| value.to_str().ok());
    let usable =
        given.filter(|id| !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_graphic()));
    usable.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// A list or watch of `metadata.name=x` is authorized as one of `x`, and any with its selectors.
fn single_out(info: &mut RequestInfo, query: &Query) {
    if !matches!(info.verb, "list" | "watch" | "deletecollection") {
        return;
    }
    let selector = query
        .get("fieldSelector")
        .and_then(|text| repot_apimachinery::selector::FieldSelector::parse(text).ok());
    if selector.is_some() {
        info.field_selector = query.get("fieldSelector").unwrap_or_default().to_owned();
    }
    let labels = query.get("labelSelector").unwrap_or_default();
    if repot_apimachinery::selector::LabelSelector::parse(labels).is_ok() {
        info.label_selector = labels.to_owned();
    }
    let single = selector.as_ref().and_then(|selector| selector.single_name());
    if let (Some(target), Some(name)) = (&mut info.target, single)
        && target.name.is_empty()
    {
        target.name = name.to_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(body: Body) -> Call {
        let request =
            Request::builder().uri("/apis/g/v1/rs?watch&a=b+c%26d&limit=7").body(body).expect("a request");
        Call::begin(request, std::sync::Arc::default()).map_err(|(status, _)| status).expect("a call")
    }

    #[test]
    fn reads_parameters() {
        let call = call(Body::empty());
        assert_eq!(call.info.verb, "watch");
        assert_eq!(call.query.get("a"), Some("b c&d"));
        assert_eq!(call.query.number("limit").expect("a number"), Some(7));
        assert!(Query::parse("limit=x").expect("a query").number("limit").is_err());
        assert!(Query::parse("a=%ff").is_err());
    }

    #[test]
    fn an_empty_value_means_what_it_means_to_kube_apiserver() {
        let query = Query::parse("watch=&limit=&dryRun=&name=&no=False&zero=0&yes=maybe").expect("a query");
        for (name, expected) in [
            ("watch", Some(true)),
            ("no", Some(false)),
            ("zero", Some(false)),
            ("yes", Some(true)),
            ("absent", None),
        ] {
            assert_eq!(query.maybe_flag(name), expected, "{name}");
        }
        assert!(query.number("limit").is_err());
        assert_eq!(
            (query.get("name"), query.present("name"), query.present("absent")),
            (None, Some(""), None)
        );
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), [""]);
    }
}
