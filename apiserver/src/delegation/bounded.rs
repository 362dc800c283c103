//! How many questions the cluster's kube-apiserver is asked at once, in all and for one flow.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    filters::overload::count_refusal,
    metrics,
    shares::{FairPool, Flow, Permit, Refusal},
    status::Status,
};

/// How long a question waits until it may be asked.
const WAIT: Duration = Duration::from_secs(10);

/// Places for questions that are asked and for those that wait, both shared among flows.
#[derive(Clone)]
pub(super) struct Bounded {
    name: &'static str,
    running: FairPool,
    waiting: FairPool,
}

impl Bounded {
    /// `name`: as metrics call it.
    pub(super) fn new(name: &'static str, running: u64, waiting: u64) -> Self {
        Self { name, running: FairPool::new(running), waiting: FairPool::new(waiting) }
    }

    /// A place for one question, held until it is answered.
    ///
    /// # Errors
    /// 429 where too many wait already, or its turn does not come.
    pub(super) async fn turn(&self, flow: &Flow) -> Result<Permit, Status> {
        let refused = |refusal: Refusal| {
            count_refusal(&metrics::REJECTED_REQUESTS, self.name, flow, refusal);
            Status::too_many_requests()
        };
        if let Ok(permit) = self.running.try_take(flow, 1) {
            return Ok(permit);
        }
        let _place = self.waiting.try_take(flow, 1).map_err(refused)?;
        timeout(WAIT, self.running.take(flow, 1)).await.map_err(|_| refused(Refusal::Exhausted))
    }
}
