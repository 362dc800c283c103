//! Trying again where an answer of the kube-apiserver says that this may help.

use std::time::{Duration, Instant};

use prometheus::{HistogramVec, IntCounterVec};
use tokio::time::timeout;

const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(10);
/// Pauses grow by up to this share at random, so that not all servers ask again at once.
const JITTER: f32 = 0.2;

/// Calls until it answers: five tries, pauses from half a second, ten seconds a try.
pub(super) async fn retrying<T, F: Future<Output = kube::Result<T>>>(
    call: impl Fn() -> F,
) -> kube::Result<T> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match timeout(DEADLINE, call()).await {
            Ok(Err(error)) if worth_a_retry(&error) => {}
            Ok(done) => return done,
            Err(_) => {}
        }
        let share = f32::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0;
        tokio::time::sleep(pause.mul_f32(1.0 + JITTER * share)).await;
        pause = pause.mul_f32(1.5);
    }
    match timeout(DEADLINE, call()).await {
        Ok(done) => done,
        Err(elapsed) => Err(kube::Error::Service(elapsed.into())),
    }
}

fn worth_a_retry(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

/// Counts a call by its HTTP code, and measures it.
pub(super) async fn counted<T>(
    count: &IntCounterVec,
    time: &HistogramVec,
    call: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    let began = Instant::now();
    let done = call.await;
    let code = match &done {
        Ok(_) => "201".to_owned(),
        Err(kube::Error::Api(status)) => status.code.to_string(),
        Err(_) => "<error>".to_owned(),
    };
    count.with_label_values(&[&code]).inc();
    time.with_label_values(&[&code]).observe(began.elapsed().as_secs_f64());
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn answer(code: u16) -> kube::Error {
        kube::Error::Api(kube::core::Status::failure("no", "no").with_code(code).boxed())
    }

    #[tokio::test]
    async fn tries_again_only_where_that_may_help() {
        for (code, expected) in [(503, 2), (429, 2), (500, 2), (403, 1), (404, 1)] {
            let calls = AtomicU32::new(0);
            let call = || async {
                match calls.fetch_add(1, Ordering::Relaxed) {
                    0 => Err(answer(code)),
                    _ => Ok(()),
                }
            };
            let done = retrying(call).await;
            assert_eq!(calls.load(Ordering::Relaxed), expected, "{code}");
            assert_eq!(done.is_ok(), expected == 2, "{code}");
        }
    }
}
