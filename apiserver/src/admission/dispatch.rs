//! The order in which webhooks are asked.

use std::collections::BTreeSet;

use repot_apimachinery::document::Document;
use repot_storage::Object;

use super::{
    Attributes,
    hook::Hook,
    invocation::{WebhookInvocation, subject},
    matching,
};
use crate::status::Status;

/// Lets webhooks change an object before it is judged. `document`: the new state, none where an object is deleted.
///
/// # Errors
/// The status that ends the request.
pub async fn mutate(
    attributes: &Attributes<'_>,
    mut document: Option<&mut Document>,
    old: Option<&Object>,
) -> Result<(), Status> {
    let Some(cluster) = attributes.server.admission.cluster() else { return Ok(()) };
    let hooks = cluster.mutating()?;
    let (mut invocation, mut rounds) = (WebhookInvocation::new(attributes, cluster, old), Rounds::default());
    for round in 0..2 {
        for (at, hook) in hooks.iter().enumerate() {
            if round > 0 && !rounds.again.contains(&hook.id) {
                continue;
            }
            if !invocation.concerns(hook, document.as_deref()).await? {
                continue;
            }
            invocation.print(document.as_deref()).await?;
            let changed = invocation.call_mutating(hook, document.as_deref_mut()).await?;
            invocation.annotate_change(round, at, hook, changed);
            rounds.note(hook, changed);
        }
        if !rounds.changed {
            break;
        }
    }
    Ok(())
}

/// Lets webhooks judge what is about to be stored, all at once.
///
/// # Errors
/// The status that ends the request.
pub async fn validate(
    attributes: &Attributes<'_>,
    document: Option<&Document>,
    old: Option<&Object>,
) -> Result<(), Status> {
    let Some(cluster) = attributes.server.admission.cluster() else { return Ok(()) };
    let hooks = cluster.validating()?;
    let mut invocation = WebhookInvocation::new(attributes, cluster, old);
    let mut asked = Vec::new();
    for hook in hooks.iter() {
        if invocation.concerns(hook, document).await? {
            asked.push(hook);
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    invocation.print(document).await?;
    let verdicts = futures::future::join_all(asked.into_iter().map(|hook| invocation.ask(hook))).await;
    // All have been asked, so all have said their warnings; the first in order ends the request.
    verdicts.into_iter().collect::<Result<Vec<_>, _>>().map(drop)
}

/// Whether a webhook may want to see updates of a resource: then a change has to be made on the whole object.
#[must_use]
pub fn may_concern(attributes: &Attributes<'_>) -> bool {
    let Some(cluster) = attributes.server.admission.cluster() else { return false };
    let subject = subject(attributes);
    let any = |hooks: Result<std::sync::Arc<super::follow::Hooks>, Status>| {
        hooks.is_ok_and(|hooks| hooks.iter().any(|hook| matching::any_rule(&hook.rules, &subject)))
    };
    any(cluster.mutating()) || any(cluster.validating())
}

/// Who is asked again: whoever wanted to be and was asked before the last change.
#[derive(Default)]
struct Rounds {
    again: BTreeSet<String>,
    asked: BTreeSet<String>,
    changed: bool,
}

impl Rounds {
    fn note(&mut self, hook: &Hook, changed: bool) {
        if changed {
            self.changed = true;
            self.again.append(&mut self.asked);
        }
        if hook.reinvoke {
            self.asked.insert(hook.id.clone());
        }
    }
}
