//! What a trace tells of a request, and which clients may decide that theirs is traced.

use http::Version;
use repot_telemetry::{ParentTrust, request::RequestAttributes};
use tracing::Span;

use crate::{
    call::Call,
    filters::{
        authentication::Authenticator,
        client_certificate::Peer,
        request_info::Target,
        user::{MASTERS, MONITORING, UNAUTHENTICATED, User},
    },
    server::Server,
};

/// Subresources that names of spans may have; clients can invent any number of others.
const SUBRESOURCES: &[&str] = &["status", "scale"];

/// The span of a request whose user is known, if it is traced.
pub(crate) fn begin(server: &Server, call: &Call) -> Span {
    if !server.sampler.is_on() {
        return Span::none();
    }
    let served = call.info.target.as_ref().filter(|target| server.resource(target).is_some());
    let route = served.map(route);
    let subresource = served.and_then(subresource);
    let attributes = RequestAttributes {
        method: call.method.as_str(),
        route: route.as_deref(),
        protocol: protocol(call.version),
        verb: Some(call.info.verb),
        group: served.map(|target| target.group.as_str()),
        version: served.map(|target| target.version.as_str()),
        resource: served.map(|target| target.resource.as_str()),
        subresource,
        audit_id: Some(&call.audit_id),
    };
    let trust = || trust(&server.authenticator, &call.peer, &call.user);
    server.sampler.begin(&call.headers, call.began, trust, &attributes)
}

/// The path of a request with placeholders, as kube-apiserver names its spans.
fn route(target: &Target) -> String {
    let Target { group, version, resource, namespace, name, .. } = target;
    let namespace = if namespace.is_empty() { "" } else { "/namespaces/{:namespace}" };
    let name = if name.is_empty() { "" } else { "/{:name}" };
    let subresource = subresource(target).map_or_else(String::new, |subresource| format!("/{subresource}"));
    format!("/apis/{group}/{version}{namespace}/{resource}{name}{subresource}")
}

fn subresource(target: &Target) -> Option<&'static str> {
    SUBRESOURCES.iter().copied().find(|known| *known == target.subresource)
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    }
}

/// How far the client may decide it; the module `repot_telemetry::sampler` says why.
fn trust(authenticator: &Authenticator, peer: &Peer, user: &User) -> ParentTrust {
    if user.in_group(UNAUTHENTICATED) {
        ParentTrust::Ignored
    } else if user.in_group(MASTERS) || user.in_group(MONITORING) {
        ParentTrust::Full
    } else if authenticator.is_front_proxy(peer) {
        ParentTrust::Limited
    } else {
        ParentTrust::Ignored
    }
}

#[cfg(test)]
mod tests {
    use repot_certs::{Authority, Roots};
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    use time::OffsetDateTime;

    use super::*;
    use crate::filters::authentication::FrontProxy;

    fn target(namespace: &str, name: &str, subresource: &str) -> Target {
        Target {
            group: "g".into(),
            version: "v1".into(),
            resource: "rs".into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn names_of_spans_have_no_names_of_objects() {
        for (target, expected) in [
            (target("", "", ""), "/apis/g/v1/rs"),
            (target("n", "", ""), "/apis/g/v1/namespaces/{:namespace}/rs"),
            (target("n", "a", "status"), "/apis/g/v1/namespaces/{:namespace}/rs/{:name}/status"),
            (target("n", "a", "invented-1"), "/apis/g/v1/namespaces/{:namespace}/rs/{:name}"),
        ] {
            assert_eq!(route(&target), expected);
        }
    }

    #[test]
    fn only_privileged_users_and_the_front_proxy_decide() {
        let now = OffsetDateTime::now_utc();
        let authority = Authority::generate("proxies", now).expect("an authority");
        let leaf = authority.issue_client("proxy", "org", now).expect("a certificate");
        let certificate = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).expect("PEM");
        let proxy = || Peer::new(vec![certificate.clone()]);
        let authenticator = Authenticator::new(None, true);
        let trusted = FrontProxy {
            roots: Roots::from_pem(authority.certificate_pem().as_bytes()).expect("roots"),
            allowed_names: vec!["proxy".into()],
            username_headers: Vec::new(),
            uid_headers: Vec::new(),
            group_headers: Vec::new(),
            extra_prefixes: Vec::new(),
        };
        authenticator.set_trust(Some(trusted), None);
        let user = |groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            User { name: "alice".into(), groups, ..User::default() }
        };
        for (peer, user, expected) in [
            (Peer::default(), user(&["system:authenticated"]), ParentTrust::Ignored),
            (Peer::default(), user(&[MASTERS]), ParentTrust::Full),
            (Peer::default(), user(&[MONITORING]), ParentTrust::Full),
            (Peer::default(), User::anonymous(), ParentTrust::Ignored),
            (proxy(), user(&["system:authenticated"]), ParentTrust::Limited),
            (proxy(), user(&["system:authenticated", MASTERS]), ParentTrust::Full),
            (proxy(), User::anonymous(), ParentTrust::Ignored),
        ] {
            assert_eq!(trust(&authenticator, &peer, &user), expected, "{user:?}");
        }
    }
}
