//! Which requests are traced.
//!
//! A client may say in `traceparent` that its request is traced. Spans cost CPU time here and room at the collector, so not every
//! client may decide it. kube-apiserver heeds the header only of members of `system:masters` and `system:monitoring`, and starts a
//! trace of its own otherwise. But a kube-apiserver that does not trace passes the header of any client on to aggregated servers.
//! So what a front proxy passes on counts only up to a number of requests in a second, and never for clients without credentials.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use opentelemetry::trace::SpanContext;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

const MILLION: u32 = 1_000_000;
/// Requests in a second that are traced because somebody with [`ParentTrust::Limited`] asked for it. At about ten spans a request
/// that is less than the queue of spans holds.
const LIMITED_PER_SECOND: u64 = 100;

/// How far a client may decide whether its request is traced, and in which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentTrust {
    /// Not at all: the request is the first of its trace.
    Ignored,
    /// For a limited number of requests in a second, of all clients together.
    Limited,
    /// For all its requests.
    Full,
}

/// Decides which requests are traced. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RequestSampler(Option<Arc<Rates>>);

#[derive(Debug)]
struct Rates {
    per_million: u32,
    limited: PerSecond,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// No span is made for it.
    NotTraced,
    /// It is the first of its trace.
    Root,
    /// It belongs to a trace that its client has begun.
    Child(SpanContext),
}

impl RequestSampler {
    /// A sampler that traces no request.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    pub(crate) fn new(per_million: u32) -> Self {
        Self(Some(Arc::new(Rates { per_million, limited: PerSecond::new(LIMITED_PER_SECOND) })))
    }

    /// Whether any request may be traced.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether something is traced that no client asks for.
    pub(crate) fn by_rate(&self) -> bool {
        self.0.as_ref().is_some_and(|rates| rates.by_rate())
    }

    /// As the sampler "parent based" of OpenTelemetry: a valid parent decides, so far as it is trusted; the rate decides otherwise.
    pub(crate) fn decide(&self, parent: Option<SpanContext>, trust: ParentTrust) -> Decision {
        let Some(rates) = &self.0 else { return Decision::NotTraced };
        let parent = parent.filter(|parent| parent.is_valid() && trust != ParentTrust::Ignored);
        let (traced, decision) = match parent {
            None => (rates.by_rate(), Decision::Root),
            Some(parent) => {
                let counted = trust == ParentTrust::Full || rates.limited.take();
                (parent.is_sampled() && (counted || rates.by_rate()), Decision::Child(parent))
            }
        };
        if traced { decision } else { Decision::NotTraced }
    }
}

impl Rates {
    fn by_rate(&self) -> bool {
        match self.per_million {
            0 => false,
            MILLION.. => true,
            rate => {
                let random = u128::from_be_bytes(RandomIdGenerator::default().new_trace_id().to_bytes());
                random % u128::from(MILLION) < u128::from(rate)
            }
        }
    }
}

/// Counts up to a number in each second.
#[derive(Debug)]
struct PerSecond {
    began: Instant,
    most: u64,
    /// The second in the upper half, what was taken in it in the lower.
    state: AtomicU64,
}

impl PerSecond {
    fn new(most: u64) -> Self {
        Self { began: Instant::now(), most, state: AtomicU64::new(0) }
    }

    /// Takes one, unless all of this second are taken.
    fn take(&self) -> bool {
        self.take_at(self.began.elapsed().as_secs())
    }

    fn take_at(&self, second: u64) -> bool {
        let taken = |state: u64| if state >> 32 == second { state & u64::from(u32::MAX) } else { 0 };
        let next = |state: u64| (taken(state) < self.most).then(|| second << 32 | (taken(state) + 1));
        self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceFlags, TraceId, TraceState};

    use super::*;

    fn parent(sampled: bool) -> SpanContext {
        let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        SpanContext::new(TraceId::from(7), SpanId::from(9), flags, true, TraceState::default())
    }

    #[test]
    fn without_a_trusted_parent_the_rate_decides() {
        for (rate, expected) in [(0, Decision::NotTraced), (MILLION, Decision::Root)] {
            let sampler = RequestSampler::new(rate);
            assert_eq!(sampler.decide(None, ParentTrust::Full), expected);
            for sampled in [false, true] {
                assert_eq!(sampler.decide(Some(parent(sampled)), ParentTrust::Ignored), expected);
            }
            let invalid = SpanContext::empty_context();
            assert_eq!(sampler.decide(Some(invalid), ParentTrust::Full), expected);
        }
        let half = RequestSampler::new(MILLION / 2);
        let traced = (0..4000).filter(|_| half.decide(None, ParentTrust::Full) == Decision::Root).count();
        assert!((1500..2500).contains(&traced), "{traced} of 4000 at one half");
    }

    #[test]
    fn a_trusted_parent_decides_whatever_the_rate_is() {
        for rate in [0, MILLION] {
            let sampler = RequestSampler::new(rate);
            for trust in [ParentTrust::Limited, ParentTrust::Full] {
                assert_eq!(sampler.decide(Some(parent(true)), trust), Decision::Child(parent(true)));
                assert_eq!(sampler.decide(Some(parent(false)), trust), Decision::NotTraced);
            }
        }
        assert_eq!(RequestSampler::off().decide(Some(parent(true)), ParentTrust::Full), Decision::NotTraced);
    }

    #[test]
    fn many_requests_of_a_limited_client_are_traced_at_the_rate_only() {
        let (sampler, began) = (RequestSampler::new(0), Instant::now());
        let traced = |trust| {
            let decide = |_: &u64| sampler.decide(Some(parent(true)), trust) != Decision::NotTraced;
            (0..10 * LIMITED_PER_SECOND).filter(decide).count() as u64
        };
        let limited = traced(ParentTrust::Limited);
        assert!(limited >= LIMITED_PER_SECOND, "{limited}");
        assert!(limited <= LIMITED_PER_SECOND * (began.elapsed().as_secs() + 2), "{limited}");
        assert_eq!(traced(ParentTrust::Full), 10 * LIMITED_PER_SECOND);
        let all = RequestSampler::new(MILLION);
        for _ in 0..2 * LIMITED_PER_SECOND {
            assert_eq!(all.decide(Some(parent(true)), ParentTrust::Limited), Decision::Child(parent(true)));
        }
    }

    #[test]
    fn each_second_has_its_number() {
        let limit = PerSecond::new(2);
        let taken = [0, 0, 0, 1, 1, 1, 5].map(|second| limit.take_at(second));
        assert_eq!(taken, [true, true, false, true, true, false, true]);
    }
}
