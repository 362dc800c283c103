//! Who may ask: the program that opened the link, and the page that came from it.
//!
//! Three things have to be right, since other programs of this machine and pages of other sites can reach the port as well:
//!
//! - `Host` names this server. A foreign name that resolves to 127.0.0.1 (DNS rebinding) is refused.
//! - The cookie comes from the link. It is `HttpOnly` and `SameSite=Strict`.
//! - Requests below `/api/` have the key in a header. Cookies are sent to every port of a host, so a server on another port may see the
//!   cookie; the key is kept by the page, for its own origin alone. No page of another origin can set the header.

use aws_lc_rs::{constant_time::verify_slices_are_equal, rand};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header, request::Parts};

/// Header with the key of the page.
pub(super) const KEY_HEADER: &str = "x-repot-key";
const SECRET_BYTES: usize = 32;

/// The secrets of one run of the program, and where it listens.
pub(super) struct Access {
    port: u16,
    /// In the link.
    token: String,
    /// In the cookie.
    session: String,
    /// In the header of requests.
    key: String,
}

/// A request that is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// With the link: the answer sets the cookie and gives the page its key.
    Link,
    /// With a session.
    Session,
}

/// A request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    #[error("the Host of the request is not this server")]
    Host,
    #[error("the request comes from another site")]
    Origin,
    #[error("open the link that repot ui has printed")]
    Session,
    #[error("browsers must not open the link ahead of time")]
    Prefetch,
}

impl Denied {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
            Self::Session => StatusCode::UNAUTHORIZED,
            Self::Prefetch => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Access {
    /// New secrets; `None` where the system has no random numbers.
    pub(super) fn new(port: u16) -> Option<Self> {
        Some(Self { port, token: secret()?, session: secret()?, key: secret()? })
    }

    /// What a person opens.
    pub(super) fn link(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    /// The key that the page sends with each request.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Value of `Set-Cookie`. The name has the port, so that two of these programs do not take away each other's session.
    pub(super) fn set_cookie(&self) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name(), self.session)
    }

    fn cookie_name(&self) -> String {
        format!("repot-ui-{}", self.port)
    }

    /// Whether this request is let in.
    pub(super) fn check(&self, request: &Parts) -> Result<Entry, Denied> {
        let Parts { method, uri, headers, .. } = request;
        let host = self.host(headers, uri).ok_or(Denied::Host)?;
        if let Some(token) = link_token(uri).filter(|_| method == Method::GET && uri.path() == "/") {
            return match (same(token, &self.token), is_prefetch(headers)) {
                (true, false) => Ok(Entry::Link),
                (true, true) => Err(Denied::Prefetch),
                (false, _) => Err(Denied::Session),
            };
        }
        if !is_same_origin(method, headers, host) {
            return Err(Denied::Origin);
        }
        let has_cookie = cookies(headers, &self.cookie_name()).any(|value| same(value, &self.session));
        let is_api = uri.path().starts_with("/api/");
        let has_key = || one(headers, KEY_HEADER).is_some_and(|key| same(key, &self.key));
        match has_cookie && (!is_api || has_key()) {
            true => Ok(Entry::Session),
            false => Err(Denied::Session),
        }
    }

    /// The one Host of the request, where it is that of this server.
    fn host<'a>(&self, headers: &'a HeaderMap, uri: &Uri) -> Option<&'a str> {
        let host = one(headers, header::HOST.as_str())?;
        let names = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        // An absolute form of the request names its host twice.
        let is_own = names.iter().any(|name| host.eq_ignore_ascii_case(name));
        let agrees = uri.authority().is_none_or(|authority| authority.as_str().eq_ignore_ascii_case(host));
        (is_own && agrees).then_some(host)
    }
}

fn secret() -> Option<String> {
    let mut bytes = [0_u8; SECRET_BYTES];
    rand::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares in a time that does not depend on where they differ.
fn same(given: &str, secret: &str) -> bool {
    verify_slices_are_equal(given.as_bytes(), secret.as_bytes()).is_ok()
}

/// The value of a header that stands there once.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

fn link_token(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

fn is_prefetch(headers: &HeaderMap) -> bool {
    headers.contains_key("sec-purpose") || headers.contains_key("purpose") || headers.contains_key("x-moz")
}

/// Browsers say where a request comes from. A request that changes something has to say it; others may leave it out.
fn is_same_origin(method: &Method, headers: &HeaderMap, host: &str) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let origin = match headers.contains_key(header::ORIGIN) {
        true => one(headers, header::ORIGIN.as_str())
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(|origin| origin.eq_ignore_ascii_case(host)),
        false => is_read,
    };
    let site = match headers.contains_key("sec-fetch-site") {
        // `none`: a person has typed the address.
        true => one(headers, "sec-fetch-site")
            .is_some_and(|site| site == "same-origin" || (site == "none" && is_read)),
        false => true,
    };
    origin && site
}

fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter_map(move |(key, value)| (key == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const PORT: u16 = 4321;

    fn access() -> Access {
        Access::new(PORT).expect("random numbers")
    }

    fn parts(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn cookie(access: &Access) -> String {
        access.set_cookie().split(';').next().expect("a pair").to_owned()
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:4321");
    const ORIGIN: (&str, &str) = ("origin", "http://127.0.0.1:4321");

    #[test]
    fn secrets_have_256_bits_and_differ() {
        let access = access();
        let all = [access.token.as_str(), &access.session, access.key()];
        assert!(all.iter().all(|secret| secret.len() == 64));
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
        assert_ne!(access.link(), super::tests::access().link());
        assert!(access.set_cookie().ends_with("; Path=/; HttpOnly; SameSite=Strict"));
    }

    #[test]
    fn link_is_let_in_with_its_token_alone() {
        let access = access();
        let path = access.link().split_once(":4321").map(|(_, path)| path.to_owned()).expect("a path");
        // From a file that the program has opened in the browser.
        let from_file = [HOST, ("sec-fetch-site", "cross-site")];
        assert_eq!(access.check(&parts("GET", &path, &from_file)), Ok(Entry::Link));
        let wrong = format!("/?token={}", "0".repeat(64));
        assert_eq!(access.check(&parts("GET", &wrong, &[HOST])), Err(Denied::Session));
        assert_eq!(access.check(&parts("GET", "/?token=", &[HOST])), Err(Denied::Session));
        assert_eq!(access.check(&parts("POST", &path, &[HOST, ORIGIN])), Err(Denied::Session));
        let ahead = [HOST, ("sec-purpose", "prefetch;prerender")];
        assert_eq!(access.check(&parts("GET", &path, &ahead)), Err(Denied::Prefetch));
    }

    #[test]
    fn other_hosts_are_refused_before_all_else() {
        let access = access();
        let cookie = cookie(&access);
        for host in ["evil.example:4321", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:4321.evil.example", ""] {
            let headers = [("host", host), ("cookie", cookie.as_str())];
            assert_eq!(access.check(&parts("GET", "/", &headers)), Err(Denied::Host), "{host}");
        }
        let none = [("cookie", cookie.as_str())];
        assert_eq!(access.check(&parts("GET", "/", &none)), Err(Denied::Host));
        let two = [HOST, ("host", "evil.example"), ("cookie", cookie.as_str())];
        assert_eq!(access.check(&parts("GET", "/", &two)), Err(Denied::Host));
        let absolute = [HOST, ("cookie", cookie.as_str())];
        assert_eq!(access.check(&parts("GET", "http://evil.example/", &absolute)), Err(Denied::Host));
        let local = [("host", "LOCALHOST:4321"), ("cookie", cookie.as_str())];
        assert_eq!(access.check(&parts("GET", "/", &local)), Ok(Entry::Session));
    }

    #[test]
    fn api_needs_the_cookie_and_the_key() {
        let access = access();
        let (cookie, key) = (cookie(&access), access.key().to_owned());
        let check = |headers: &[(&str, &str)]| access.check(&parts("GET", "/api/kinds/shoots", headers));
        assert_eq!(check(&[HOST]), Err(Denied::Session));
        assert_eq!(check(&[HOST, ("cookie", &cookie)]), Err(Denied::Session));
        assert_eq!(check(&[HOST, (KEY_HEADER, &key)]), Err(Denied::Session));
        assert_eq!(check(&[HOST, ("cookie", &cookie), (KEY_HEADER, &"0".repeat(64))]), Err(Denied::Session));
        assert_eq!(check(&[HOST, ("cookie", &cookie), (KEY_HEADER, &key)]), Ok(Entry::Session));
        let among = format!("other=1; {cookie}; last=2");
        assert_eq!(check(&[HOST, ("cookie", &among), (KEY_HEADER, &key)]), Ok(Entry::Session));
        let prefixed = format!("x{cookie}");
        assert_eq!(check(&[HOST, ("cookie", &prefixed), (KEY_HEADER, &key)]), Err(Denied::Session));
    }

    #[test]
    fn changes_come_from_the_page_alone() {
        let access = access();
        let (cookie, key) = (cookie(&access), access.key().to_owned());
        let check = |more: &[(&str, &str)]| {
            let mut headers = vec![HOST, ("cookie", cookie.as_str()), (KEY_HEADER, key.as_str())];
            headers.extend(more);
            access.check(&parts("POST", "/api/migrations", &headers))
        };
        assert_eq!(check(&[]), Err(Denied::Origin));
        for origin in ["null", "http://evil.example", "https://127.0.0.1:4321", "http://127.0.0.1:1"] {
            assert_eq!(check(&[("origin", origin)]), Err(Denied::Origin), "{origin}");
        }
        for site in ["cross-site", "same-site", "none"] {
            assert_eq!(check(&[ORIGIN, ("sec-fetch-site", site)]), Err(Denied::Origin), "{site}");
        }
        assert_eq!(check(&[ORIGIN]), Ok(Entry::Session));
        assert_eq!(check(&[ORIGIN, ("sec-fetch-site", "same-origin")]), Ok(Entry::Session));
        // The other name of this server is another origin.
        assert_eq!(check(&[("origin", "http://localhost:4321")]), Err(Denied::Origin));
    }

    #[test]
    fn page_that_another_site_opens_is_refused() {
        let access = access();
        let cookie = cookie(&access);
        let headers = [HOST, ("cookie", cookie.as_str()), ("sec-fetch-site", "cross-site")];
        assert_eq!(access.check(&parts("GET", "/", &headers)), Err(Denied::Origin));
        let typed = [HOST, ("cookie", cookie.as_str()), ("sec-fetch-site", "none")];
        assert_eq!(access.check(&parts("GET", "/", &typed)), Ok(Entry::Session));
    }
}
