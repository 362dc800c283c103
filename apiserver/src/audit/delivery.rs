//! When a request waits for the audit log, spelled as kube-apiserver's `--audit-log-mode` and `--audit-log-batch-*`
//! (`k8s.io/apiserver/pkg/server/options/audit.go`).

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

/// What a request does while its event is not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It waits, within its own time.
    #[default]
    Blocking,
    /// It waits, and fails with 500 when its arrival cannot be recorded.
    BlockingStrict,
    /// It goes on; events that find no place in the buffer are dropped and counted.
    Batch,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "blocking" => Ok(Self::Blocking),
            "blocking-strict" => Ok(Self::BlockingStrict),
            "batch" => Ok(Self::Batch),
            _ => Err("must be one of batch,blocking,blocking-strict".to_owned()),
        }
    }
}

/// How events are buffered and written in [`Mode::Batch`].
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Events of authenticated requests that may wait.
    pub buffer_size: usize,
    /// Most events that are written at a time.
    pub max_size: usize,
    /// For how long a batch that is not full waits for more events.
    pub max_wait: Duration,
    /// How many batches are written.
    pub throttle: Option<Throttle>,
}

impl Default for Batch {
    /// The defaults of kube-apiserver for its log.
    fn default() -> Self {
        Self { buffer_size: 10_000, max_size: 1, max_wait: Duration::ZERO, throttle: None }
    }
}

/// A limit on batches.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    /// Batches per second, on average.
    pub qps: f32,
    /// Batches at once, after a time with fewer of them.
    pub burst: u32,
}

/// A token bucket that limits how many batches are written in a second.
pub(super) struct Bucket {
    throttle: Throttle,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn new(throttle: Throttle, now: Instant) -> Self {
        Self { throttle, tokens: throttle.burst.into(), at: now }
    }

    /// Takes a token, and tells for how long to wait for it.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let qps = f64::from(self.throttle.qps);
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * qps;
        self.tokens = (self.tokens + gained).min(self.throttle.burst.into()) - 1.0;
        self.at = now;
        Duration::try_from_secs_f64((-self.tokens / qps).max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_kube_apiserver() {
        let modes = ["blocking", "blocking-strict", "batch"].map(|text| text.parse::<Mode>());
        assert_eq!(modes, [Ok(Mode::Blocking), Ok(Mode::BlockingStrict), Ok(Mode::Batch)]);
        assert_eq!(Mode::default(), Mode::Blocking);
        assert!("Batch".parse::<Mode>().is_err());
    }

    #[test]
    fn a_throttle_lets_a_burst_through_and_then_so_many_a_second() {
        let now = Instant::now();
        let mut bucket = Bucket::new(Throttle { qps: 4.0, burst: 2 }, now);
        let waits: Vec<u128> = (0..4).map(|_| bucket.take(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 250, 500]);
        // A pause does not save up more than the burst.
        let later = now + Duration::from_secs(60);
        let waits: Vec<u128> = (0..3).map(|_| bucket.take(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 250]);
    }
}
