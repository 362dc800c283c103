use anyhow::ensure;
use repot_tests::run;
use serde_json::Value;

use super::tls::{Authorities, with_tls};
use super::world::spec;

#[test]
fn members_agents_and_operator_show_each_other_certificates() {
    run(async |env| {
        let mut place = Authorities::make(env)?.place("operator-tls").await?;
        place.apply(with_tls(spec(3), false)).await?;
        place.until_members(3, "main").await?;
        // Ids are known by those who were let in.
        let known = |status: &Value| {
            let members = status["members"].as_array();
            members.is_some_and(|members| members.iter().all(|member| member["id"].is_string()))
        };
        let etcd = place.until("ids of members", known).await?;
        ensure!(etcd["status"]["peerUrlTLSEnabled"] == true, "{}", etcd["status"]);
        place.member(0).await?.put("a", "1").await?;
        place.tls = None;
        ensure!(place.member(0).await?.ctl(&["get", "a"]).await.is_err(), "it speaks without TLS");
        Ok(())
    });
}
