//! The tunnel of the destination of a live migration: clients in the Shoot find its servers by a temporary name, until they find them by that
//! of the API.

use repot_plan::migration::{
    Step,
    observed::{MigrationRequest, TunnelFacts},
};

use super::{objects::Objects, prepare};
use crate::{
    errors::causes,
    migration::{
        context::Context,
        error::{Error, Result},
        overall::{Ledger, is_open},
        pass::Pass,
        seed::{exposure::Exposing, tunnel_client::Maker, tunnel_facts},
    },
};

/// Lets the temporary name lead to the Service of the tunnel, as soon as that has an address.
///
/// # Errors
/// [`Error`]. The next pass goes on.
pub async fn expose(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let seed = pass.context.own_client();
    let Some(tunnel) = objects.plane.tunnel().map_err(Error::Missing)? else { return Ok(()) };
    let like = objects.zone_record.as_ref();
    let like = like.ok_or_else(|| Error::Missing("a DNSRecord of the zone".to_owned()))?;
    let address = prepare::api_address(seed, &objects.namespace, &tunnel.service).await?;
    let Some(address) = address else { return Ok(()) };
    let exposing = exposing(pass.context, objects, &pass.facts.request)?;
    objects.exposed.ensure_tunnel(seed, &exposing, &address, like).await
}

fn exposing<'a>(
    context: &'a Context,
    objects: &'a Objects,
    request: &'a MigrationRequest,
) -> Result<Exposing<'a>> {
    Ok(Exposing {
        etcd: objects.etcds.need_main()?,
        seed: &request.destination_seed,
        members: 0,
        migration: &request.uid,
        exposer: &context.exposer,
    })
}

/// The tunnel as the destination sees it. What costs requests is asked only while a row decides on it.
pub async fn facts(
    context: &Context,
    objects: &Objects,
    request: &MigrationRequest,
    ledger: &Ledger,
) -> TunnelFacts {
    let seed = context.own_client();
    // Steps of the source are not in this ledger.
    let is_held = ledger.is_started(Step::TunnelServes) && !ledger.is_settled(Step::MoveCommitted);
    let asked = tunnel_facts::Asked {
        maker: Maker::of(request),
        clients: is_open(ledger, Step::TunnelMoved),
        reach: is_held && !ledger.phase.is_rollback(),
    };
    let mut facts = tunnel_facts::facts(seed, &objects.namespace, &objects.plane, asked).await;
    if is_open(ledger, Step::TunnelExposed) {
        let found = unexposed(context, objects, request).await;
        facts.unexposed = found.unwrap_or_else(|error| Some(causes(&error)));
    }
    facts
}

async fn unexposed(
    context: &Context,
    objects: &Objects,
    request: &MigrationRequest,
) -> Result<Option<String>> {
    let Some(tunnel) = objects.plane.tunnel().map_err(Error::Missing)? else {
        return Ok(Some("no Deployment of the tunnel was carried".to_owned()));
    };
    let address = prepare::api_address(context.own_client(), &objects.namespace, &tunnel.service).await?;
    let Some(address) = address else {
        return Ok(Some(format!("Service {} of the tunnel has no address", tunnel.service)));
    };
    let exposing = exposing(context, objects, request)?;
    objects.exposed.tunnel_missing(&exposing, &address).await
}
