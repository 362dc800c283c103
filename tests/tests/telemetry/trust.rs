//! Which clients decide that their requests are traced.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::future::try_join_all;
use repot_tests::access::Credential;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::otel::{Collector, Span};
use repot_tests::repot::Repot;
use repot_tests::run;
use serde_json::json;

use super::world::{ClientTrace, arrived, direct, direct_as, flags, tracing};
use crate::shootstate::world::{GROUP, VERSION, collection};

/// How many requests of users of the front proxy are traced in a second because these ask for it: `LIMITED_PER_SECOND`.
const LIMIT: usize = 100;

#[test]
fn a_client_cannot_make_the_server_trace_as_much_as_it_likes() {
    run(async |env| {
        let mut collector = Collector::start(env).await?;
        // This kube-apiserver does not trace, and passes the headers of its clients on.
        let garden = Garden::start(env).await?;
        let mut own = flags(env)?;
        own.push(tracing(&collector.config(env, 0)?));
        let mut repot = Repot::behind(env, &garden, &[(GROUP, VERSION)], own).await?;
        let rbac = "rbac.authorization.k8s.io";
        let reader = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "alice"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "alice"}],
        });
        garden.apply(&[reader]).await?;
        let traces = (0..3).map(|_| ClientTrace::new()).collect::<anyhow::Result<Vec<_>>>()?;
        let [anonymous, ordinary, master] = &traces[..] else { anyhow::bail!("three traces") };
        let nobody = direct(&garden, &repot, Credential::Anonymous)?;
        ensure!(anonymous.get(&nobody, "/readyz").await?.status == 200, "/readyz is for everybody");
        let alice = direct_as(&garden, &repot, "alice", &[])?;
        let path = collection("default");
        ordinary.get(&alice, &path).await?.ok()?;

        let proxied = Api::new(&garden.user("alice", &[])?)?;
        let began = Instant::now();
        let many = (0..4 * LIMIT).map(|_| async { ClientTrace::new()?.get(&proxied, &path).await?.ok() });
        try_join_all(many).await?;
        let seconds = usize::try_from(began.elapsed().as_secs())?;

        let admin = direct_as(&garden, &repot, "admin", &["system:masters"])?;
        master.get(&admin, &path).await?.ok()?;
        let of_master = |span: &Span| span.trace == master.trace && span.kind == "Server";
        arrived(&mut collector, "the span of an administrator", of_master).await?;
        repot.stop().await?;
        // Spans are sent in the order in which they end: those before have come, too.
        let spans = collector.spans().await?;
        for untrusted in [anonymous, ordinary] {
            ensure!(spans.iter().all(|span| span.trace != untrusted.trace), "a client decided it");
        }
        let requests = spans.iter().filter(|span| span.kind == "Server").count();
        ensure!(requests > LIMIT / 2, "only {requests} requests of the front proxy are traced");
        let most = LIMIT * (seconds + 2) + 1;
        ensure!(requests <= most, "{requests} requests were traced in {seconds} seconds");
        ensure!(seconds < Duration::from_secs(60).as_secs() as usize, "too slow to tell: {seconds} seconds");
        Ok(())
    });
}
