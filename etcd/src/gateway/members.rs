//! The members that calls may go to.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::watch,
    time::{Duration, Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{EndpointStatus, Error, backoff::Backoff};

/// How long a member that failed is used only where there is no other.
const ILL: Duration = Duration::from_secs(1);

/// A member's URL for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `http://` or `https://`, a host, and a port.
    pub url: String,
    /// Whether it is on the same site. The others are used when none of these is well.
    pub near: bool,
}

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    pub url: String,
    pub host: String,
    pub port: u16,
    pub tls: bool,
    /// It is not to be used any more.
    pub gone: CancellationToken,
    /// When it may be dialled.
    pub backoff: Backoff,
    calls: watch::Sender<usize>,
    ill_until: Mutex<Option<Instant>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Members {
    listed: RwLock<Vec<Listed>>,
    /// Those that left and may still have calls.
    leaving: Mutex<Vec<Arc<Member>>>,
}

#[derive(Clone, Debug)]
struct Listed {
    member: Arc<Member>,
    near: bool,
}

/// A call at a member, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlightCall(Arc<Member>);

impl Member {
    fn new(url: &str) -> Result<Self, Error> {
        let bad = |why: &'static str| Error::BadEndpoint { url: url.to_owned(), why };
        let parsed = Url::parse(url).map_err(|_| bad("it is not a URL"))?;
        let tls = match parsed.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(bad("it must begin with http:// or https://")),
        };
        let host = parsed.host_str().ok_or_else(|| bad("it has no host"))?;
        Ok(Self {
            url: url.to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: parsed.port_or_known_default().ok_or_else(|| bad("it has no port"))?,
            tls,
            gone: CancellationToken::new(),
            backoff: Backoff::default(),
            calls: watch::Sender::new(0),
            ill_until: Mutex::new(None),
        })
    }

    /// Others are preferred for a while.
    pub(super) fn mark_unhealthy(&self) {
        *self.ill_until.lock() = Some(Instant::now() + ILL);
    }

    fn is_ill(&self, now: Instant) -> bool {
        self.ill_until.lock().is_some_and(|until| until > now)
    }
}

impl Members {
    /// The best member that is not among those that were tried: a near one that is well, else a far one that is, else any. Callers
    /// with different turns get different ones of those that are equally good.
    pub(super) fn pick(&self, turn: usize, tried: &[Arc<Member>]) -> Option<InFlightCall> {
        let (listed, now) = (self.listed.read(), Instant::now());
        let untried = |listed: &&Listed| !tried.iter().any(|member| Arc::ptr_eq(member, &listed.member));
        let count = listed.len().max(1);
        let best =
            listed.iter().enumerate().filter(|(_, listed)| untried(listed)).min_by_key(|(at, listed)| {
                (listed.member.is_ill(now), !listed.near, (at + turn % count) % count)
            });
        // Counted before the lock is given back: whoever takes the member away sees this call.
        best.map(|(_, listed)| InFlightCall::new(&listed.member))
    }

    /// Uses these members from now on; gives those that are not among them any more, and those that left earlier and still have calls.
    ///
    /// # Errors
    /// Where there are none, or a URL cannot be used; then nothing has changed.
    pub(super) fn set(&self, endpoints: &[Endpoint]) -> Result<Vec<Arc<Member>>, Error> {
        if endpoints.is_empty() {
            return Err(Error::NoEndpoints);
        }
        let mut listed = self.listed.write();
        let mut next: Vec<Listed> = Vec::new();
        for Endpoint { url, near } in endpoints {
            let known = listed.iter().find(|listed| listed.member.url == *url);
            let member = known.map_or_else(|| Member::new(url).map(Arc::new), |k| Ok(k.member.clone()))?;
            next.push(Listed { member, near: *near });
        }
        let stays = |member: &Arc<Member>| next.iter().any(|listed| Arc::ptr_eq(&listed.member, member));
        let old = listed.iter().map(|listed| &listed.member);
        let mut leaving = self.leaving.lock();
        leaving.retain(|member| *member.calls.borrow() > 0);
        leaving.extend(old.filter(|member| !stays(member)).cloned());
        *listed = next;
        Ok(leaving.clone())
    }

    pub(super) fn status(&self) -> Vec<EndpointStatus> {
        let (listed, now) = (self.listed.read(), Instant::now());
        let status = |Listed { member, near }: &Listed| EndpointStatus {
            url: member.url.clone(),
            near: *near,
            well: !member.is_ill(now),
            calls: *member.calls.borrow(),
        };
        listed.iter().map(status).collect()
    }
}

/// Ends the streams of members that left, and waits until their calls have ended; gives how many have not.
pub(super) async fn retire(left: &[Arc<Member>], by: Instant) -> usize {
    let mut calls = 0;
    for member in left {
        member.gone.cancel();
        let mut seen = member.calls.subscribe();
        if timeout_at(by, seen.wait_for(|calls| *calls == 0)).await.is_err() {
            calls += *member.calls.borrow();
        }
    }
    calls
}

impl InFlightCall {
    fn new(member: &Arc<Member>) -> Self {
        member.calls.send_modify(|calls| *calls += 1);
        Self(member.clone())
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.0
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.0.calls.send_modify(|calls| *calls -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(urls: &[(&str, bool)]) -> Vec<Endpoint> {
        urls.iter().map(|(url, near)| Endpoint { url: (*url).to_owned(), near: *near }).collect()
    }

    #[tokio::test]
    async fn near_ones_that_are_well_come_first() {
        let members = Members::default();
        members
            .set(&mk(&[("http://far:1", false), ("http://a:1", true), ("http://b:1", true)]))
            .expect("set");
        let pick =
            |turn, tried: &[Arc<Member>]| members.pick(turn, tried).map(|flight| flight.member().clone());
        let first = pick(0, &[]).expect("one");
        let others: Vec<_> = (1..3).map(|turn| pick(turn, &[]).expect("one").url.clone()).collect();
        assert!(first.url != "http://far:1" && others.iter().any(|other| *other != first.url), "{others:?}");
        first.mark_unhealthy();
        let second = pick(0, &[]).expect("one");
        assert!(second.url != first.url && second.url != "http://far:1");
        second.mark_unhealthy();
        let third = pick(0, &[]).expect("one");
        assert_eq!(third.url, "http://far:1");
        assert!(pick(0, &[first, second, third]).is_none());
    }

    #[tokio::test]
    async fn one_that_leaves_is_waited_for() {
        let members = Members::default();
        members.set(&mk(&[("http://a:1", true)])).expect("set");
        let flight = members.pick(0, &[]).expect("one");
        let left = members.set(&mk(&[("http://b:1", true)])).expect("set");
        assert_eq!(left.len(), 1);
        assert_eq!(retire(&left, Instant::now() + Duration::from_millis(20)).await, 1);
        assert!(flight.member().gone.is_cancelled());
        // Whoever asks again waits for it again.
        assert_eq!(members.set(&mk(&[("http://b:1", true)])).expect("set").len(), 1);
        drop(flight);
        assert!(members.set(&mk(&[("http://b:1", true)])).expect("set").is_empty());
        assert_eq!(retire(&left, Instant::now() + Duration::from_secs(60)).await, 0);
    }

    #[test]
    fn urls_that_cannot_be_used_are_refused_and_change_nothing() {
        let members = Members::default();
        members.set(&mk(&[("https://[::1]:2379", true)])).expect("set");
        for wrong in ["a:1", "ftp://a", "http://", "http//x"] {
            assert!(members.set(&mk(&[(wrong, true)])).is_err(), "{wrong}");
        }
        assert!(matches!(members.set(&[]), Err(Error::NoEndpoints)));
        let member = members.pick(0, &[]).expect("still there").member().clone();
        assert_eq!((member.host.as_str(), member.port, member.tls), ("::1", 2379, true));
    }
}
