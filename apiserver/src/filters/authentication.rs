//! Who makes the request: the front proxy's word, the client's certificate, a bearer token, or nobody known.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use http::{HeaderMap, header};

use super::{
    client_certificate::{Peer, Roots, Standing},
    request_info::percent,
    user::User,
};
use crate::{connection_shares::Owner, delegation::TokenReviewer, status::Status};

/// Whom to believe; changes while the server runs.
#[derive(Debug, Default)]
pub struct Trust {
    /// Authorities and header names of the front proxy.
    pub front_proxy: Option<FrontProxy>,
    /// Authorities of client certificates.
    pub client: Option<Roots>,
    number: u64,
}

/// The proxy that asserts identities in headers.
#[derive(Clone, Debug)]
pub struct FrontProxy {
    /// Who may have issued its certificate.
    pub roots: Roots,
    /// Its common names; empty: any.
    pub allowed_names: Vec<String>,
    /// Headers of the user name; the first that is set counts.
    pub username_headers: Vec<String>,
    /// Headers of the UID. Empty where the proxy does not promise to strip what its clients send.
    pub uid_headers: Vec<String>,
    /// Headers of groups; all count.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with further facts.
    pub extra_prefixes: Vec<String>,
}

/// Finds out who makes a request.
pub struct Authenticator {
    trust: ArcSwap<Trust>,
    next: AtomicU64,
    tokens: Option<TokenReviewer>,
    anonymous: bool,
}

impl Authenticator {
    /// `tokens`: who knows about bearer tokens, if anybody does; `anonymous`: whether requests without credentials go on.
    #[must_use]
    pub fn new(tokens: Option<TokenReviewer>, anonymous: bool) -> Self {
        Self { trust: ArcSwap::from_pointee(Trust::default()), next: AtomicU64::new(1), tokens, anonymous }
    }

    /// Believes these from now on.
    pub fn set_trust(&self, front_proxy: Option<FrontProxy>, client: Option<Roots>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.trust.store(Arc::new(Trust { front_proxy, client, number }));
    }

    /// For whom a connection counts by its certificate: the front proxy, or a client. `None`: there is none, or it is not good.
    pub(crate) fn owner(&self, peer: &Peer) -> Option<Owner> {
        let (standing, front_proxy) = self.standing(peer)?;
        if front_proxy {
            return Some(Owner::front_proxy(&standing.common_name));
        }
        standing.user().as_ref().and_then(Owner::user)
    }

    /// Whether the certificate of a connection is that of the front proxy.
    pub(crate) fn is_front_proxy(&self, peer: &Peer) -> bool {
        self.standing(peer).is_some_and(|(_, front_proxy)| front_proxy)
    }

    /// What a certificate amounts to, and whether it is that of the front proxy.
    fn standing(&self, peer: &Peer) -> Option<(Standing, bool)> {
        let trust = self.trust.load_full();
        let roots = trust.front_proxy.as_ref().map(|proxy| &proxy.roots);
        let standing = peer.standing(trust.number, roots, trust.client.as_ref())?;
        let proxy = trust.front_proxy.as_ref().filter(|proxy| proxy.allows(&standing.common_name));
        let front_proxy = standing.front_proxy && proxy.is_some();
        Some((standing, front_proxy))
    }

    /// Who makes the request. The headers that assert identities are taken out, whoever sent them.
    ///
    /// # Errors
    /// 401 where a credential is presented that is not good, or none is and nobody unknown may call.
    pub async fn authenticate(&self, peer: &Peer, headers: &mut HeaderMap) -> Result<User, Status> {
        let trust = self.trust.load_full();
        let asserted = trust.front_proxy.as_ref().and_then(|proxy| proxy.assertion(headers));
        strip(headers);
        let bearer = bearer(headers);
        headers.remove(header::AUTHORIZATION);
        let roots = trust.front_proxy.as_ref().map(|proxy| &proxy.roots);
        let standing = peer.standing(trust.number, roots, trust.client.as_ref());
        if let (Some(standing), Some(proxy), Some(user)) = (&standing, &trust.front_proxy, asserted)
            && standing.front_proxy
            && proxy.allows(&standing.common_name)
        {
            return Ok(user.known());
        }
        if let Some(user) = standing.as_ref().and_then(Standing::user) {
            return Ok(user);
        }
        match (bearer, &self.tokens) {
            (Some(token), Some(reviewer)) => {
                reviewer.review(&token, peer.address).await?.map(User::known).ok_or_else(Status::unauthorized)
            }
            // A credential that nobody vouches for is not the same as none.
            (Some(_), None) => Err(Status::unauthorized()),
            (None, _) if standing.is_some() => Err(Status::unauthorized()),
            (None, _) if self.anonymous => Ok(User::anonymous()),
            (None, _) => Err(Status::unauthorized()),
        }
    }
}

impl FrontProxy {
    fn allows(&self, common_name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|name| name == common_name)
    }

    /// The identity that the headers assert, if they assert one.
    fn assertion(&self, headers: &HeaderMap) -> Option<User> {
        let values = |names: &[String]| -> Vec<String> {
            let all = names.iter().flat_map(|name| headers.get_all(name.as_str()));
            all.filter_map(text).filter(|v| !v.is_empty()).map(str::to_owned).collect()
        };
        let name = values(&self.username_headers).into_iter().next()?;
        let uid = values(&self.uid_headers).into_iter().next().unwrap_or_default();
        Some(User { name, uid, groups: values(&self.group_headers), extra: self.extra(headers) })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in headers {
            let lower = name.as_str().to_ascii_lowercase();
            let stripped =
                self.extra_prefixes.iter().find_map(|p| lower.strip_prefix(&p.to_ascii_lowercase()));
            if let (Some(key), Some(value)) = (stripped, text(value)) {
                // Keys with characters that headers cannot carry come percent-encoded.
                let key = percent(key, false).unwrap_or_else(|| key.to_owned());
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
        extra
    }
}

/// Names are UTF-8 on the wire, not only ASCII.
fn text(value: &http::HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// No later stage may see what a client says about itself.
fn strip(headers: &mut HeaderMap) {
    let asserted: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    for name in asserted {
        headers.remove(name);
    }
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::user::AUTHENTICATED;
    use repot_certs::Authority;
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    use time::OffsetDateTime;

    struct World {
        authenticator: Authenticator,
        proxy: Authority,
        client: Authority,
    }

    fn world(allowed: &[&str]) -> World {
        let now = OffsetDateTime::now_utc();
        let (proxy, client) = (
            Authority::generate("proxy", now).expect("made"),
            Authority::generate("client", now).expect("made"),
        );
        let authenticator = Authenticator::new(None, true);
        let roots = |ca: &Authority| Roots::from_pem(ca.certificate_pem().as_bytes()).expect("roots");
        let front_proxy = FrontProxy {
            roots: roots(&proxy),
            allowed_names: allowed.iter().map(|n| (*n).to_owned()).collect(),
            username_headers: vec!["X-Remote-User".into()],
            uid_headers: Vec::new(),
            group_headers: vec!["X-Remote-Group".into()],
            extra_prefixes: vec!["X-Remote-Extra-".into()],
        };
        authenticator.set_trust(Some(front_proxy), Some(roots(&client)));
        World { authenticator, proxy, client }
    }

    fn peer(ca: &Authority, name: &str) -> Peer {
        let leaf = ca.issue_client(name, "org", OffsetDateTime::now_utc()).expect("issued");
        Peer::new(vec![CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).expect("PEM")])
    }

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("X-Remote-User", "alice"),
            ("X-Remote-Uid", "42"),
            ("X-Remote-Group", "g1"),
            ("X-Remote-Group", "g2"),
            ("X-Remote-Extra-Example.com%2fScopes", "a"),
        ] {
            headers.append(
                http::HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                value.parse().expect("a value"),
            );
        }
        headers
    }

    #[tokio::test]
    async fn believes_the_front_proxy_and_only_it() {
        let w = world(&["front-proxy-client"]);
        let mut sent = headers();
        let user = w
            .authenticator
            .authenticate(&peer(&w.proxy, "front-proxy-client"), &mut sent)
            .await
            .expect("a user");
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", ""));
        assert_eq!(user.groups, ["g1", "g2", "system:authenticated"]);
        assert_eq!(user.extra["example.com/scopes"], ["a"]);
        assert!(sent.keys().all(|name| !name.as_str().starts_with("x-remote-")));
        // Right authority, wrong name: no identity from headers, and none of its own.
        assert!(w.authenticator.authenticate(&peer(&w.proxy, "other"), &mut headers()).await.is_err());
        let mut utf8 = headers();
        utf8.insert(
            "X-Remote-User",
            http::HeaderValue::from_bytes("j\u{fc}rgen".as_bytes()).expect("a value"),
        );
        let proxy = peer(&w.proxy, "front-proxy-client");
        let user = w.authenticator.authenticate(&proxy, &mut utf8).await.expect("a user");
        assert_eq!(user.name, "j\u{fc}rgen");
    }

    #[tokio::test]
    async fn forged_headers_change_nothing() {
        let w = world(&[]);
        let nobody = Peer::default();
        let user = w.authenticator.authenticate(&nobody, &mut headers()).await.expect("anonymous");
        assert_eq!(user, User::anonymous());
        let user = w.authenticator.authenticate(&peer(&w.client, "bob"), &mut headers()).await.expect("bob");
        assert_eq!(
            (user.name.as_str(), user.groups),
            ("bob", vec!["org".into(), "system:authenticated".into()])
        );
    }

    #[tokio::test]
    async fn a_bad_credential_is_not_anonymous() {
        let w = world(&[]);
        let stranger = Authority::generate("stranger", OffsetDateTime::now_utc()).expect("made");
        assert!(w.authenticator.authenticate(&peer(&stranger, "eve"), &mut HeaderMap::new()).await.is_err());
        let mut token = HeaderMap::new();
        token.insert(header::AUTHORIZATION, "Bearer nonsense".parse().expect("a value"));
        assert!(w.authenticator.authenticate(&Peer::default(), &mut token).await.is_err());
        let expired = {
            let past = OffsetDateTime::now_utc() - time::Duration::days(400);
            let leaf = w.client.issue_client("bob", "org", past).expect("issued");
            Peer::new(vec![CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).expect("PEM")])
        };
        assert!(w.authenticator.authenticate(&expired, &mut HeaderMap::new()).await.is_err());
    }

    #[tokio::test]
    async fn any_name_counts_where_none_is_demanded() {
        for (allowed, name, counts) in [
            (&[][..], "whoever", true),
            (&["front-proxy-client"], "front-proxy-client", true),
            (&["front-proxy-client"], "front-proxy-client2", false),
            (&["front-proxy-client"], "", false),
        ] {
            let w = world(allowed);
            let user = w.authenticator.authenticate(&peer(&w.proxy, name), &mut headers()).await;
            assert_eq!(user.is_ok_and(|user| user.name == "alice"), counts, "{allowed:?} {name:?}");
        }
    }

    #[tokio::test]
    async fn headers_are_read_as_the_front_proxy_writes_them() {
        let w = world(&[]);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let proxy = FrontProxy {
            roots: Roots::from_pem(w.proxy.certificate_pem().as_bytes()).expect("roots"),
            allowed_names: Vec::new(),
            username_headers: names(&["X-First", "X-Remote-User"]),
            uid_headers: names(&["X-Remote-Uid"]),
            group_headers: names(&["X-Remote-Group", "X-More-Groups"]),
            extra_prefixes: names(&["X-Remote-Extra-", "X-Fact-"]),
        };
        w.authenticator.set_trust(Some(proxy), None);
        let mut sent = headers();
        for (name, value) in [
            ("x-first", ""),
            ("x-more-groups", "g3"),
            ("x-remote-extra-example.com%2fscopes", "b"),
            ("x-fact-zone", "a"),
        ] {
            let name = http::HeaderName::from_static(name);
            sent.append(name, value.parse().expect("a value"));
        }
        let user = w.authenticator.authenticate(&peer(&w.proxy, "p"), &mut sent).await.expect("a user");
        // An empty header is none, all group headers count in their order, and configured UIDs do.
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", "42"));
        assert_eq!(user.groups, ["g1", "g2", "g3", AUTHENTICATED]);
        assert_eq!(user.extra["example.com/scopes"], ["a", "b"]);
        assert_eq!(user.extra["zone"], ["a"]);
    }

    #[tokio::test]
    async fn credentials_count_in_their_order() {
        let w = world(&[]);
        let mut token = headers();
        token.insert(header::AUTHORIZATION, "Bearer nonsense".parse().expect("a value"));
        // The front proxy's word comes before anything else; what it leaves of the client's token does not matter.
        let user = w.authenticator.authenticate(&peer(&w.proxy, "p"), &mut token.clone()).await;
        assert_eq!(user.expect("a user").name, "alice");
        // Then the client's certificate, before the token.
        let user = w.authenticator.authenticate(&peer(&w.client, "bob"), &mut token.clone()).await;
        assert_eq!(user.expect("a user").name, "bob");
        // Then the token, which nobody vouches for; only without one is somebody anonymous.
        assert!(w.authenticator.authenticate(&Peer::default(), &mut token).await.is_err());
        assert!(token.get(header::AUTHORIZATION).is_none(), "the token goes on");
        let user = w.authenticator.authenticate(&Peer::default(), &mut headers()).await;
        assert_eq!(user.expect("anonymous"), User::anonymous());
    }

    #[tokio::test]
    async fn nobody_unknown_may_call_where_that_is_switched_off() {
        let authenticator = Authenticator::new(None, false);
        let refused = authenticator.authenticate(&Peer::default(), &mut HeaderMap::new()).await;
        assert_eq!(refused.expect_err("nobody").code(), http::StatusCode::UNAUTHORIZED);
    }

    #[test]
    fn who_is_known_is_in_the_group_of_all_known() {
        let user = |groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            User { name: "alice".into(), groups, ..User::default() }.known().groups
        };
        assert_eq!(user(&[]), [AUTHENTICATED]);
        assert_eq!(user(&["g"]), ["g", AUTHENTICATED]);
        assert_eq!(user(&[AUTHENTICATED, "g"]), [AUTHENTICATED, "g"]);
        assert_eq!(user(&["system:unauthenticated"]), ["system:unauthenticated"]);
    }

    #[tokio::test]
    async fn new_authorities_count_at_once() {
        let w = world(&[]);
        let bob = peer(&w.client, "bob");
        assert!(w.authenticator.authenticate(&bob, &mut HeaderMap::new()).await.is_ok());
        let roots = Roots::from_pem(w.proxy.certificate_pem().as_bytes()).expect("roots");
        w.authenticator.set_trust(None, Some(roots));
        assert!(w.authenticator.authenticate(&bob, &mut HeaderMap::new()).await.is_err());
    }
}
