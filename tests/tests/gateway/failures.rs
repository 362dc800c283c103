//! Members that go away.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use etcd_client::{Client, Error, WatchOptions};
use repot_etcd::gateway::{Endpoint, Error as GatewayError};
use repot_tests::etcd::EtcdCluster;
use repot_tests::run;
use repot_tests::wait::until;
use tokio::time::{sleep, timeout};

use super::world::{DEADLINE, client, endpoints, open, versions};

/// One member near, the others far: what is asked goes to the near one as long as that is well.
fn near_first(etcd: &EtcdCluster) -> Vec<Endpoint> {
    let mut all = endpoints(&etcd.endpoints(), false);
    all[0].near = true;
    all
}

#[test]
fn reads_go_on_when_their_member_is_killed_or_hangs() {
    run(async |bed| {
        let mut etcd = EtcdCluster::start(bed, 3).await?;
        let gateway = open(near_first(&etcd)).await?;
        let mut client = client(&gateway).await?;
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
fn write_whose_outcome_is_unknown_is_not_sent_again() {
    run(async |bed| {
        let mut etcd = EtcdCluster::start(bed, 3).await?;
        let gateway = open(near_first(&etcd)).await?;
        let client = client(&gateway).await?;
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
    run(async |bed| {
        let mut etcd = EtcdCluster::start(bed, 3).await?;
        let all = endpoints(&etcd.endpoints(), true);
        let gateway = open(all[..1].to_vec()).await?;
        let mut client = client(&gateway).await?;
        let mut watch = client.watch("k", Some(WatchOptions::new().with_start_revision(1))).await?;
        client.put("k", "1", None).await?;
        let first = timeout(DEADLINE, watch.message()).await??;
        ensure!(first.is_some_and(|message| message.events().len() == 1));
        gateway.set_endpoints(&all[1..], DEADLINE).await?;
        etcd.member(0).kill();
        let Err(Error::GRpcStatus(end)) = timeout(DEADLINE, watch.message()).await? else {
            bail!("a watch at a member that is not used any more went on");
        };
        ensure!(end.code() == 14.into(), "{end}");
        let again = WatchOptions::new().with_start_revision(2);
        let mut watch = client.watch("k", Some(again)).await?;
        create_until_it_works(&mut client).await?;
        let message = timeout(DEADLINE, watch.message()).await??;
        ensure!(message.is_some_and(|message| message.events().len() == 1));
        let wrong = [Endpoint { url: "etcd:2379".to_owned(), near: true }];
        let refused = gateway.set_endpoints(&wrong, DEADLINE).await;
        ensure!(matches!(refused, Err(GatewayError::BadEndpoint { .. })), "{refused:?}");
        ensure!(gateway.status().endpoints.len() == 2);
        Ok(())
    });
}

/// The member that was killed may have led.
async fn create_until_it_works(client: &mut Client) -> Result<()> {
    until("a new leader", DEADLINE, async || Ok(client.clone().put("k", "2", None).await.map(drop)?)).await
}
