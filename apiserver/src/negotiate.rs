//! Which form of an answer the client wants, and whether to compress it.

use http::{HeaderMap, header};
use repot_apimachinery::protobuf;

use crate::status::Status;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The object itself.
    Object,
    /// A table for people; the version of `meta.k8s.io` to say.
    Table(MetaVersion),
    /// Metadata only; the version of `meta.k8s.io` to say.
    Metadata(MetaVersion),
}

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// A version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// Today's.
    V1,
    /// For clients of the years before 1.15.
    V1Beta1,
}

impl MetaVersion {
    /// As written in `apiVersion`.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// One clause of an Accept header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn json(&self) -> bool {
        self.encoding() == Some(Encoding::Json)
    }

    /// JSON is what wildcards mean.
    fn encoding(&self) -> Option<Encoding> {
        match self.media {
            "application/json" | "application/*" | "*/*" => Some(Encoding::Json),
            protobuf::MEDIA_TYPE => Some(Encoding::Protobuf),
            _ => None,
        }
    }

    /// Whether the client takes the document itself, and not another form of it.
    fn plain(&self) -> bool {
        ["as", "g", "v"].iter().all(|name| self.parameter(name).is_none())
    }
}

/// The clauses of an Accept header, best first; a missing header accepts everything.
fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let values: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let mut weighted: Vec<(u32, Clause<'_>)> = Vec::new();
    for text in values.iter().flat_map(|value| value.split(',')) {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let q = parameters
            .iter()
            .find(|(key, _)| *key == "q")
            .and_then(|(_, q)| q.parse::<f32>().ok())
            .unwrap_or(1.0);
        if !media.is_empty() && q > 0.0 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a weight from 0 to 1"
            )]
            weighted.push(((q.min(1.0) * 1000.0) as u32, Clause { media, parameters }));
        }
    }
    weighted.sort_by_key(|(q, _)| std::cmp::Reverse(*q));
    if weighted.is_empty() && values.is_empty() {
        return vec![Clause { media: "*/*", parameters: Vec::new() }];
    }
    weighted.into_iter().map(|(_, clause)| clause).collect()
}

/// The best form that can be served. See [`form_and_encoding`].
///
/// # Errors
/// 406 with what is supported, when no clause can be met.
pub fn form(headers: &HeaderMap, list: bool) -> Result<Form, Status> {
    form_and_encoding(headers, list).map(|(form, _)| form)
}

/// The best form that can be served, and its encoding. Only metadata is served in protobuf, as kube-apiserver does for custom
/// resources (`StandardSerializers` of their `RequestScope`); a table has no protobuf anywhere.
///
/// `list`: metadata is asked for as a list there, as a single object elsewhere.
///
/// # Errors
/// 406 with what is supported, when no clause can be met.
pub fn form_and_encoding(headers: &HeaderMap, list: bool) -> Result<(Form, Encoding), Status> {
    let metadata = if list { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
    let one = |clause: Clause<'_>| {
        let encoding = clause.encoding()?;
        let version = match (clause.parameter("g"), clause.parameter("v")) {
            (Some("meta.k8s.io"), Some("v1")) => Some(MetaVersion::V1),
            (Some("meta.k8s.io"), Some("v1beta1")) => Some(MetaVersion::V1Beta1),
            _ => None,
        };
        let form = match (clause.parameter("as"), version) {
            (None, _) => Form::Object,
            (Some("Table"), Some(version)) => Form::Table(version),
            (Some(kind), Some(version)) if kind == metadata => Form::Metadata(version),
            _ => return None,
        };
        let served = encoding == Encoding::Json || matches!(form, Form::Metadata(_));
        served.then_some((form, encoding))
    };
    let supported = "application/json, application/json;as=Table;g=meta.k8s.io;v=v1, \
                     application/json;as=PartialObjectMetadata(List);g=meta.k8s.io;v=v1, \
                     application/vnd.kubernetes.protobuf;as=PartialObjectMetadata(List);g=meta.k8s.io;v=v1";
    clauses(headers).into_iter().find_map(one).ok_or_else(|| Status::not_acceptable(supported))
}

/// The encoding of a `Status` that says why a request failed: the best one that the client takes for a whole document, as
/// `ErrorNegotiated` of kube-apiserver chooses it, and JSON where there is none.
#[must_use]
pub fn of_failure(headers: &HeaderMap) -> Encoding {
    document(headers).unwrap_or(Encoding::Json)
}

/// The encoding of a document that has both.
///
/// # Errors
/// 406.
pub fn document(headers: &HeaderMap) -> Result<Encoding, Status> {
    let found = clauses(headers).iter().find_map(|clause| clause.encoding().filter(|_| clause.plain()));
    found.ok_or_else(|| Status::not_acceptable(&format!("application/json, {}", protobuf::MEDIA_TYPE)))
}

/// The version of `apidiscovery.k8s.io` in which aggregated discovery is wanted, and its encoding; `None`: the legacy form
/// is.
#[must_use]
pub fn aggregated_discovery(headers: &HeaderMap) -> Option<(&'static str, Encoding)> {
    for clause in clauses(headers) {
        let Some(encoding) = clause.encoding() else { continue };
        match (clause.parameter("g"), clause.parameter("v"), clause.parameter("as")) {
            (Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList")) => {
                return Some(("v2", encoding));
            }
            (Some("apidiscovery.k8s.io"), Some("v2beta1"), Some("APIGroupDiscoveryList")) => {
                return Some(("v2beta1", encoding));
            }
            (_, _, None) => return None,
            _ => {}
        }
    }
    None
}

/// Whether plain JSON is acceptable at all.
///
/// # Errors
/// 406.
pub fn json(headers: &HeaderMap) -> Result<(), Status> {
    // A document is no collection of objects: there is no table of it, and no metadata.
    let ok = clauses(headers).iter().any(|clause| clause.json() && clause.parameter("as").is_none());
    if ok { Ok(()) } else { Err(Status::not_acceptable("application/json")) }
}

/// The best of these media types, or JSON where they come equally; parameters play no part.
///
/// # Errors
/// 406.
pub fn best_of(headers: &HeaderMap, media: &[&'static str]) -> Result<&'static str, Status> {
    let one = |clause: &Clause<'_>| {
        if clause.json() {
            return Some("application/json");
        }
        media.iter().find(|media| **media == clause.media).copied()
    };
    let best = clauses(headers).iter().find_map(one);
    best.ok_or_else(|| Status::not_acceptable(&format!("application/json, {}", media.join(", "))))
}

/// Whether the first clause that can be met asks for indented JSON (`application/json;pretty=1`).
#[must_use]
pub fn pretty(headers: &HeaderMap) -> bool {
    let clauses = clauses(headers);
    clauses.iter().find(|clause| clause.json()).is_some_and(|clause| clause.parameter("pretty") == Some("1"))
}

/// Whether the client takes gzip.
#[must_use]
pub fn gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        name == "gzip" && !refused
    })
}

/// The base of a Content-Type; `application/json` where there is none.
#[must_use]
pub fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let base = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if base.is_empty() { "application/json".to_owned() } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().expect("a header"));
        headers
    }

    #[test]
    fn walks_the_clauses_until_one_fits() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (value, list, expected) in [
            ("application/json", true, Some(Form::Object)),
            ("*/*", true, Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", true, Some(Form::Object)),
            (
                &format!("{table},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"),
                true,
                Some(Form::Table(MetaVersion::V1)),
            ),
            ("application/json;as=Unknown;g=meta.k8s.io;v=v1,application/json", true, Some(Form::Object)),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                true,
                Some(Form::Metadata(MetaVersion::V1)),
            ),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", false, None),
            (
                "application/json;q=0.5,application/json;as=Table;g=meta.k8s.io;v=v1;q=0.9",
                true,
                Some(Form::Table(MetaVersion::V1)),
            ),
            ("application/vnd.kubernetes.protobuf", true, None),
            ("text/html", true, None),
        ] {
            assert_eq!(form(&accept(value), list).ok(), expected, "{value}");
        }
        assert_eq!(form(&HeaderMap::new(), true).ok(), Some(Form::Object));
    }

    #[test]
    fn only_metadata_is_served_in_protobuf() {
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
        let metadata = Form::Metadata(MetaVersion::V1);
        let (one, many) = (
            ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        );
        let table = ";as=Table;g=meta.k8s.io;v=v1";
        for (value, list, expected) in [
            // As client-go's metadata client asks.
            (
                format!("{PROTOBUF}{many},application/json{many},application/json"),
                true,
                Some((metadata, Encoding::Protobuf)),
            ),
            (format!("{PROTOBUF}{one}"), false, Some((metadata, Encoding::Protobuf))),
            (format!("{PROTOBUF}{one};stream=watch"), false, Some((metadata, Encoding::Protobuf))),
            (
                format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"),
                false,
                Some((Form::Metadata(MetaVersion::V1Beta1), Encoding::Protobuf)),
            ),
            (format!("application/json{one},{PROTOBUF}{one}"), false, Some((metadata, Encoding::Json))),
            (
                format!("application/json{one};q=0.5,{PROTOBUF}{one}"),
                false,
                Some((metadata, Encoding::Protobuf)),
            ),
            (format!("{PROTOBUF}{one},application/json"), true, Some((Form::Object, Encoding::Json))),
            (format!("{PROTOBUF},application/json"), false, Some((Form::Object, Encoding::Json))),
            (
                format!("{PROTOBUF}{table},application/json{table}"),
                true,
                Some((Form::Table(MetaVersion::V1), Encoding::Json)),
            ),
            (format!("{PROTOBUF}{table}"), true, None),
            (format!("{PROTOBUF}{one}"), true, None),
            (PROTOBUF.to_owned(), false, None),
        ] {
            assert_eq!(form_and_encoding(&accept(&value), list).ok(), expected, "{value}");
        }
    }

    #[test]
    fn failures_come_in_protobuf_to_who_takes_it_plainly() {
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
        let one = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        for (value, expected) in [
            (format!("{PROTOBUF},application/json"), Encoding::Protobuf),
            (PROTOBUF.to_owned(), Encoding::Protobuf),
            (format!("{PROTOBUF}{one},application/json{one},application/json"), Encoding::Json),
            (format!("{PROTOBUF}{one}"), Encoding::Json),
            (format!("{PROTOBUF}{one},{PROTOBUF}"), Encoding::Protobuf),
            (format!("{PROTOBUF};q=0.1,*/*"), Encoding::Json),
            ("text/html".to_owned(), Encoding::Json),
        ] {
            assert_eq!(of_failure(&accept(&value)), expected, "{value}");
        }
        assert_eq!(of_failure(&HeaderMap::new()), Encoding::Json);
    }

    #[test]
    fn finds_aggregated_discovery_in_any_order_of_parameters() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let (json, protobuf) = (Encoding::Json, Encoding::Protobuf);
        assert_eq!(aggregated_discovery(&accept(&format!("{v2},application/json"))), Some(("v2", json)));
        let other =
            "application/json;as=APIGroupDiscoveryList;v=v2beta1;g=apidiscovery.k8s.io;profile=nopeer";
        assert_eq!(aggregated_discovery(&accept(other)), Some(("v2beta1", json)));
        let encoded = v2.replace("application/json", "application/vnd.kubernetes.protobuf");
        assert_eq!(aggregated_discovery(&accept(&format!("{encoded},{v2}"))), Some(("v2", protobuf)));
        assert_eq!(aggregated_discovery(&accept("application/vnd.kubernetes.protobuf")), None);
        assert_eq!(aggregated_discovery(&accept("application/json")), None);
        assert_eq!(aggregated_discovery(&accept("*/*")), None);
    }

    #[test]
    fn documents_are_never_tables() {
        for (value, expected) in [
            ("application/json", true),
            ("*/*", true),
            ("application/json;as=Table;g=meta.k8s.io;v=v1", false),
            ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", true),
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", false),
            ("application/vnd.kubernetes.protobuf", false),
        ] {
            assert_eq!(json(&accept(value)).is_ok(), expected, "{value}");
        }
    }

    #[test]
    fn reads_codings_and_types() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, "deflate, gzip;q=1.0".parse().expect("a header"));
        assert!(gzip(&headers));
        headers.insert(header::ACCEPT_ENCODING, "gzip;q=0".parse().expect("a header"));
        assert!(!gzip(&headers));
        headers.insert(header::CONTENT_TYPE, "Application/JSON; charset=utf-8".parse().expect("a header"));
        assert_eq!(content_type(&headers), "application/json");
    }
}
