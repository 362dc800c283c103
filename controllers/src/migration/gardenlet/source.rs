//! The source of a classic migration, which gardenlet migrates: it is looked at, and nothing of it is written.

use repot_plan::gardenlet::{Step, observed::SourceFacts};

use super::{destination::is_api_ready, status::Ledger};
use crate::migration::{api::Shoot, context::Context, error::Result};

/// Observes the source. It is asked before the step begins, which is reached by the first look otherwise.
///
/// # Errors
/// Where its API server does not answer.
pub async fn observe(context: &Context, shoot: Option<&Shoot>, ledger: &Ledger) -> Result<SourceFacts> {
    let api_ready = match shoot.filter(|_| !ledger.is_settled(Step::ApiStopped)) {
        Some(shoot) => Some(is_api_ready(context.own_client(), &shoot.status.technical_id).await?),
        None => None,
    };
    Ok(SourceFacts { api_ready })
}
