//! Trying again where an answer of the kube-apiserver says that this may help.

use std::time::Duration;

use tokio::time::timeout;

const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(10);

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
        tokio::time::sleep(pause).await;
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
