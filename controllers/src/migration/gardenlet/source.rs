//! The source of a classic migration, which gardenlet migrates: it is looked at, and nothing of it is written.

use repot_plan::gardenlet::{Step, observed::SourceFacts};

use super::{
    destination::is_api_ready,
    status::{Ledger, is_open},
};
use crate::migration::{api::Shoot, context::Context, error::Result};

/// Observes the source. Without a Shoot there is no API server of it.
///
/// # Errors
/// Where its API server does not answer.
pub async fn observe(context: &Context, shoot: Option<&Shoot>, ledger: &Ledger) -> Result<SourceFacts> {
    let api_ready = match shoot.filter(|_| is_open(ledger, Step::ApiStopped)) {
        Some(shoot) => is_api_ready(context.own_client(), &shoot.status.technical_id).await?,
        None => false,
    };
    Ok(SourceFacts { api_ready })
}
