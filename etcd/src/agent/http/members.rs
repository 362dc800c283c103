//! Removing a member by hand. Controllers change members themselves, one at a time (`repot_etcd_core::members`).

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
};
use etcd_client::Member;
use serde_json::json;
use tokio::time::timeout;

use super::{Agent, Answer, Failure, Json};
use crate::agent::{clients, settings::chain};

/// How long etcd has to list its members, and to remove one.
const PATIENCE: Duration = Duration::from_secs(30);

/// Removes the member of a name. etcd refuses where that would cost the quorum.
pub(super) async fn remove(State(agent): State<Arc<Agent>>, RawQuery(query): RawQuery) -> Answer {
    let name = name(query.as_deref())?;
    let client = agent.client().await?;
    let members = clients::members(&client, PATIENCE).await?;
    let found = find(&members, &name)?;
    let status = client.maintenance_client().status().await;
    let leader = status.map_err(|error| Failure::of(&error))?.leader();
    if leader == found.id() {
        let message = format!("{name} leads; move the leader first, then remove it");
        return Err(Failure(StatusCode::CONFLICT, message));
    }
    let mut cluster = client.cluster_client();
    match timeout(PATIENCE, cluster.member_remove(found.id())).await {
        Ok(Ok(_)) => {
            tracing::warn!(name, id = format!("{:x}", found.id()), "a member is removed by request");
            Ok(Json(json!({ "removed": { "id": format!("{:x}", found.id()), "name": name } })))
        }
        Ok(Err(error)) => Err(Failure(StatusCode::CONFLICT, chain(&error))),
        Err(_) => Err(Failure::unavailable(
            "etcd did not say in time whether the member is removed; list the members",
        )),
    }
}

fn name(query: Option<&str>) -> Result<String, Failure> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let name = pairs.find(|(key, value)| key == "name" && !value.is_empty());
    name.map(|(_, value)| value.into_owned()).ok_or_else(|| {
        Failure(
            StatusCode::BAD_REQUEST,
            "name is missing: the name of the member in etcd, as in ?name=m0".to_owned(),
        )
    })
}

fn find<'a>(members: &'a [Member], name: &str) -> Result<&'a Member, Failure> {
    let mut found = members.iter().filter(|member| member.name() == name);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(Failure(
            StatusCode::CONFLICT,
            format!("several members are called {name}; remove one by its id"),
        )),
        (None, _) => {
            let names: Vec<&str> = members.iter().map(Member::name).filter(|name| !name.is_empty()).collect();
            let message = format!("no member is called {name}; there are: {}", names.join(", "));
            Err(Failure(StatusCode::NOT_FOUND, message))
        }
    }
}
