//! How the status of a Pod comes into the API.

use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{interval, sleep};

use super::pod::{Life, RETRY};
use super::status::{Transitions, is_written, render};

/// How often a kubelet writes its conditions again where somebody else has changed them.
const RECONCILE: Duration = Duration::from_secs(10);

/// What came of writing a status.
enum Written {
    Done,
    Failed,
    /// The pod is not in the API any more.
    Gone,
}

impl Life {
    /// Writes the status whenever it changes, until the pod is over and that is written; now and then again, where somebody else
    /// has written another one.
    pub(super) async fn report(&self) {
        let (mut seen, mut pod) = (self.seen.subscribe(), self.pod.clone());
        let mut reconcile = interval(RECONCILE);
        let (mut written, mut transitions) = (Value::Null, Transitions::new());
        loop {
            let (now, current) = (seen.borrow_and_update().clone(), pod.borrow_and_update().clone());
            let status = render(&current, &now, Timestamp::now(), &mut transitions);
            if status != written {
                match self.write(&status).await {
                    Written::Done => written = status,
                    Written::Gone => return,
                    Written::Failed => {
                        sleep(RETRY).await;
                        continue;
                    }
                }
            }
            if now.over {
                return;
            }
            tokio::select! {
                _ = seen.changed() => {}
                Ok(()) = pod.changed() => {}
                _ = reconcile.tick(), if self.ground.nodes[self.node].beats.load(Ordering::Relaxed) => {
                    if !is_written(&pod.borrow(), &written) {
                        written = Value::Null;
                    }
                }
            }
        }
    }

    async fn write(&self, status: &Value) -> Written {
        // With the uid, so that it is never written to a successor of the same name.
        let patch = json!({"metadata": {"uid": self.uid}, "status": status});
        let params = PatchParams::default();
        match self.pods().patch_status(&self.name, &params, &Patch::Strategic(&patch)).await {
            Ok(_) => Written::Done,
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Written::Gone,
            Err(kube::Error::Api(status)) if status.code == 422 => {
                eprintln!("pod runner: the status of {} was refused: {}", self.key(), status.message);
                Written::Failed
            }
            Err(_) => Written::Failed,
        }
    }
}
