//! How far the Job that copies snapshots is: its Pod tells over HTTP. So the Pod needs no rights in kube-apiserver, and the operator
//! none in the stores.

use std::{net::IpAddr, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use repot_etcd_core::copy_progress::{CopyProgress as Told, LONGEST, PATH, PORT};
use reqwest::redirect;

use super::{
    Result, copy,
    observe::{self, Observed},
    status::CopyProgress,
};

/// How long an answer may take: the pass waits for it.
const ANSWER: Duration = Duration::from_secs(1);
/// What is newer than this is not asked for again. Each change of the status begins another pass, so a copy that moves fast would
/// keep the operator busy.
const FRESH: SignedDuration = SignedDuration::from_secs(5);

/// What the Pod of the Job tells, or told earlier; `None` where no Job copies.
///
/// # Errors
/// [`super::Error::Read`] where its Pods cannot be listed. That a Pod does not answer is none.
pub async fn observe(client: &Client, observed: &Observed, now: Timestamp) -> Result<Option<CopyProgress>> {
    let Some(job) = observed.copy.as_ref().filter(|job| !copy::has_ended(job)) else { return Ok(None) };
    let name = job.name_any();
    let earlier = observed.status().copy_progress.filter(|earlier| earlier.job == name);
    if earlier.as_ref().is_some_and(|earlier| is_fresh(earlier, now)) {
        return Ok(earlier);
    }
    let namespace = observed.etcd.namespace().unwrap_or_default();
    let pods =
        observe::list::<Pod>(client, &namespace, &format!("batch.kubernetes.io/job-name={name}")).await?;
    let Some(address) = pods.iter().find_map(address) else { return Ok(earlier) };
    Ok(match ask(address).await {
        Ok(told) => Some(record(&name, &told, earlier, now)),
        Err(error) => {
            tracing::debug!(job = name, %error, "the Pod does not tell how far the copy is");
            earlier
        }
    })
}

fn is_fresh(earlier: &CopyProgress, now: Timestamp) -> bool {
    let observed: Option<Timestamp> = earlier.observed_time.parse().ok();
    observed.is_some_and(|observed| now.duration_since(observed) < FRESH && observed <= now)
}

/// The address of a Pod that runs.
fn address(pod: &Pod) -> Option<IpAddr> {
    let status = pod.status.as_ref()?;
    let runs = status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none();
    status.pod_ip.as_ref().filter(|_| runs)?.parse().ok()
}

/// What is recorded: the same as before where nothing has changed, so that nothing is written.
fn record(job: &str, told: &Told, earlier: Option<CopyProgress>, now: Timestamp) -> CopyProgress {
    let second = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time).to_string();
    let fresh = CopyProgress {
        job: job.to_owned(),
        phase: format!("{:?}", told.phase),
        snapshots: told.snapshots,
        snapshots_total: told.snapshots_total,
        bytes: told.bytes,
        bytes_total: told.bytes_total,
        bytes_sent: told.bytes_sent,
        failed: told.failed,
        last_progress_time: second(told.last_progress),
        observed_time: second(now),
    };
    match earlier {
        Some(earlier)
            if CopyProgress { observed_time: earlier.observed_time.clone(), ..fresh.clone() } == earlier =>
        {
            earlier
        }
        _ => fresh,
    }
}

/// Asks the Pod at this address.
async fn ask(address: IpAddr) -> std::result::Result<Told, String> {
    let failed = |error: reqwest::Error| error.without_url().to_string();
    let client = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none()).timeout(ANSWER);
    let url = match address {
        IpAddr::V4(address) => format!("http://{address}:{PORT}{PATH}"),
        IpAddr::V6(address) => format!("http://[{address}]:{PORT}{PATH}"),
    };
    let answer = client.build().map_err(failed)?.get(url).send().await;
    let mut answer = answer.and_then(reqwest::Response::error_for_status).map_err(failed)?;
    let mut text = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(failed)? {
        text.extend_from_slice(&piece);
        if text.len() > LONGEST {
            return Err(format!("the answer is longer than {LONGEST} bytes"));
        }
    }
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use repot_etcd_core::copy_progress::CopyPhase;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn told(bytes_sent: u64) -> Told {
        Told {
            phase: CopyPhase::Copying,
            snapshots: 2,
            snapshots_total: 10,
            bytes: 3 * MIB,
            bytes_total: 900 * MIB,
            bytes_sent,
            failed: 0,
            last_progress: Timestamp::from_second(1_000).expect("a time"),
        }
    }

    #[test]
    fn what_stands_still_is_not_written_again_and_what_moves_is() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let first = record("copy-1", &told(MIB), None, at(1_001));
        assert!(is_fresh(&first, at(1_005)) && !is_fresh(&first, at(1_006)));
        // A clock that was set back.
        assert!(!is_fresh(&first, at(900)));
        assert_eq!(record("copy-1", &told(MIB), Some(first.clone()), at(2_000)), first);
        let second = record("copy-1", &told(2 * MIB), Some(first.clone()), at(2_000));
        assert_eq!((second.bytes_sent, second.observed_time.as_str()), (2 * MIB, "1970-01-01T00:33:20Z"));
    }

    #[test]
    fn one_line_says_how_far_it_is() {
        let mut progress = record("copy-1", &told(7 * MIB), None, Timestamp::UNIX_EPOCH);
        let line = "2 of 10 snapshots, 3 of 900 MiB, 7 MiB sent, the last at 1970-01-01T00:16:40Z";
        assert_eq!(progress.summary(), line);
        progress.failed = 1;
        assert!(progress.summary().starts_with("2 of 10 snapshots, 1 failed, "));
        progress.phase = "WaitingForFinalSnapshot".to_owned();
        let line = "it waits for the final snapshot; 7 MiB are sent ahead, the last at 1970-01-01T00:16:40Z";
        assert_eq!(progress.summary(), line);
        progress.bytes_sent = 0;
        assert_eq!(progress.summary(), "it waits for the final snapshot, since 1970-01-01T00:16:40Z");
    }
}
