//! Members that go away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd_client::{Client, Error, WatchOptions, WatchStream};
use repot_etcd::gateway::{Endpoint, Error as GatewayError};
use repot_tests::etcd::EtcdCluster;
use repot_tests::run;
use repot_tests::wait::until;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::world::{DEADLINE, client, direct, endpoints, open, start, versions};

/// One member near, the others far: what is asked goes to the near one as long as that is well.
fn near_first(etcd: &EtcdCluster) -> Vec<Endpoint> {
    let mut all = endpoints(&etcd.endpoints(), false);
    all[0].near = true;
    all
}

#[test]
fn reads_go_on_when_their_member_is_killed_or_hangs() {
    run(async |env| {
        let mut etcd = start(env, 3).await?;
        let gateway = open(&etcd, near_first(&etcd)).await?;
        let mut client = client(&etcd, &gateway).await?;
        client.put("k", "1", None).await?;
        for hangs in [false, true] {
            let reads = tokio::spawn({
                let mut client = client.clone();
                async move {
                    for _ in 0..300 {
                        ensure!(client.get("k", None).await?.count() == 1);
                    }
                    Ok(())
                }
            });
            sleep(Duration::from_millis(20)).await;
            match hangs {
                true => etcd.member(0).process().pause(),
                false => etcd.member(0).kill(),
            }
            timeout(DEADLINE, reads).await???;
            client.put("k", "2", None).await?;
            match hangs {
                true => etcd.member(0).process().resume(),
                false => etcd.member(0).restart().await?,
            }
        }
        Ok(())
    });
}

#[test]
fn what_a_member_did_not_do_is_done_by_another() {
    run(async |env| {
        let mut etcd = start(env, 3).await?;
        etcd.add_learner(env).await?;
        let urls = etcd.endpoints();
        let learner = direct(&etcd, &urls[3]).await?;
        let Err(Error::GRpcStatus(refused)) = learner.kv_client().put("k", "1", None).await else {
            bail!("a learner took a write");
        };
        ensure!(refused.message() == "etcdserver: rpc not supported for learner", "{refused}");
        let mut all = endpoints(&urls, false);
        all[3].near = true;
        let gateway = open(&etcd, all).await?;
        let mut client = client(&etcd, &gateway).await?;
        client.put("k", "1", None).await?;
        ensure!(client.get("k", None).await?.count() == 1);
        let lease = client.lease_grant(600, None).await?.id();
        ensure!(client.lease_time_to_live(lease, None).await?.granted_ttl() == 600);
        // It is not asked first again.
        let status = gateway.status();
        ensure!(!status.endpoints.iter().any(|one| one.url == urls[3] && one.well), "{status:?}");
        Ok(())
    });
}

#[test]
fn write_whose_outcome_is_unknown_is_not_sent_again() {
    run(async |env| {
        let mut etcd = start(env, 3).await?;
        let gateway = open(&etcd, near_first(&etcd)).await?;
        let client = client(&etcd, &gateway).await?;
        client.clone().get("k", None).await?;
        // It takes the write, and is gone before it looks at it: nobody but this test can know that.
        etcd.member(0).process().pause();
        let write = tokio::spawn({
            let mut client = client.clone();
            async move { client.put("once/k", "1", None).await }
        });
        until("the write to be on its way", DEADLINE, async || {
            ensure!(gateway.status().endpoints[0].calls == 1, "{:?}", gateway.status());
            Ok(())
        })
        .await?;
        sleep(Duration::from_millis(100)).await;
        etcd.member(0).kill();
        let Err(Error::GRpcStatus(status)) = timeout(DEADLINE, write).await?? else {
            bail!("a write was acknowledged by nobody");
        };
        ensure!(status.message().contains("not known"), "{status}");

        ensure!(versions(&client, "once/").await?.is_empty(), "it was sent again");
        // The next goes to another one.
        client.clone().put("once/next", "1", None).await?;
        Ok(())
    });
}

#[test]
fn members_change_while_it_serves() {
    run(async |env| {
        let mut etcd = start(env, 3).await?;
        let all = endpoints(&etcd.endpoints(), true);
        let gateway = open(&etcd, all[..1].to_vec()).await?;
        let mut client = client(&etcd, &gateway).await?;
        let mut watch = client.watch("k", Some(WatchOptions::new().with_start_revision(1))).await?;
        client.put("k", "1", None).await?;
        ensure!(next_revision(&mut watch).await? == 2);
        gateway.set_endpoints(&all[1..], DEADLINE).await?;
        etcd.member(0).kill();
        create_until_it_works(&mut client).await?;
        ensure!(next_revision(&mut watch).await? == 3, "the watch did not go on where it was");
        let wrong = [Endpoint { url: "etcd:2379".to_owned(), near: true }];
        let refused = gateway.set_endpoints(&wrong, DEADLINE).await;
        ensure!(matches!(refused, Err(GatewayError::BadEndpoint { .. })), "{refused:?}");
        ensure!(gateway.status().endpoints.len() == 2);
        Ok(())
    });
}

#[test]
fn watches_go_on_without_a_gap_or_a_repetition_when_their_member_is_killed() {
    run(async |env| {
        let mut etcd = start(env, 3).await?;
        let gateway = open(&etcd, near_first(&etcd)).await?;
        let mut client = client(&etcd, &gateway).await?;
        // Two watches in one stream of the client's: from the beginning, and from now on.
        client.put("k", "0", None).await?;
        let all = WatchOptions::new().with_prefix().with_start_revision(1);
        let mut all = client.watch("", Some(all)).await?;
        let mut new = client.watch("k", None).await?;
        ensure!(next_revision(&mut all).await? == 2);
        for round in 0..3 {
            for put in 0..20 {
                create_until_it_works(&mut client).await.with_context(|| format!("round {round}, {put}"))?;
            }
            etcd.member(0).kill();
            create_until_it_works(&mut client).await?;
            etcd.member(0).restart().await?;
        }
        let last = client.get("k", None).await?.kvs()[0].mod_revision();
        for watch in [&mut all, &mut new] {
            let mut seen = Vec::new();
            while seen.last().is_none_or(|seen| *seen < last) {
                seen.extend(revisions(watch).await?);
            }
            ensure!(seen == (3..=last).collect::<Vec<_>>(), "{seen:?}");
        }
        ensure!(last >= 65, "{last}");
        Ok(())
    });
}

/// Revision of the next event.
async fn next_revision(watch: &mut WatchStream) -> Result<i64> {
    match revisions(watch).await?[..] {
        [revision] => Ok(revision),
        ref more => bail!("{more:?} at once"),
    }
}

/// Revisions of the next events.
async fn revisions(watch: &mut WatchStream) -> Result<Vec<i64>> {
    loop {
        let message = timeout(DEADLINE, watch.message()).await??.context("the watch ended")?;
        let revision = |event: &etcd_client::Event| Some(event.kv()?.mod_revision());
        let revisions: Vec<i64> = message.events().iter().filter_map(revision).collect();
        if !revisions.is_empty() {
            return Ok(revisions);
        }
    }
}

/// The member that was killed may have led.
async fn create_until_it_works(client: &mut Client) -> Result<()> {
    until("a new leader", DEADLINE, async || Ok(client.clone().put("k", "2", None).await.map(drop)?)).await
}

/// As with an agent that lost ownership: its etcd has stopped, and API servers go on to ask its gateway.
#[test]
fn a_member_that_cannot_be_reached_is_dialled_twice_a_second_at_most_by_all_clients_together() {
    const CLIENTS: usize = 40;
    const ASKED: Duration = Duration::from_secs(8);
    run(async |env| {
        let etcd = start(env, 1).await?;
        // It takes connections and ends them before the handshake: so each attempt is counted.
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let dials = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&dials);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        let gateway = open(&etcd, endpoints(std::slice::from_ref(&url), true)).await?;
        let began = Instant::now();
        let mut asking = JoinSet::new();
        for _ in 0..CLIENTS {
            let mut client = client(&etcd, &gateway).await?;
            asking.spawn(async move { timeout(ASKED, client.get("k", None)).await });
        }
        for answer in asking.join_all().await {
            ensure!(!matches!(answer, Ok(Ok(_))), "a read was answered by nobody");
        }
        // A pause is a quarter of the time before it, up to half a second; and the gateway itself asks for authentication.
        let most = 25 + 2 * usize::try_from(began.elapsed().as_secs())?;
        let made = dials.load(Ordering::SeqCst);
        ensure!((2..=most).contains(&made), "{made} connections for {CLIENTS} clients, {most} at most");
        println!("{made} connections for {CLIENTS} clients in {:?}", began.elapsed());
        // Whoever is there again is asked again.
        gateway.set_endpoints(&endpoints(&etcd.endpoints(), true), ASKED).await?;
        client(&etcd, &gateway).await?.put("k", "1", None).await?;
        Ok(())
    });
}
