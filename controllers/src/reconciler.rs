//! How every controller of this crate runs: reconciles are measured, logged and retried here and nowhere else.

use std::{fmt::Debug, hash::Hash, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Resource, ResourceExt,
    runtime::{Controller, controller, controller::Action},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{
    errors::causes,
    metrics::{Metrics, ReconcileResult},
};

/// Why a reconcile ended early.
pub trait ReconcileError: std::error::Error + Send + 'static {
    /// Whether an object has changed since it was read. Such a reconcile is repeated soon, and is no failure.
    fn is_conflict(&self) -> bool;
}

/// What [`run`] has to know of a controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name, in metrics and logs; the lower-case kind that it reconciles.
    pub name: &'static str,
    /// How long to wait after a conflict.
    pub after_conflict: Duration,
    /// How long to wait after any other error.
    pub after_error: Duration,
    /// Where its reconciles are counted.
    pub metrics: Metrics,
}

/// Runs a controller until `stop`, and then until the reconciles that run have ended.
///
/// An error makes the object be reconciled again after the time in `settings`; conflicts are logged as debug messages, other errors
/// as warnings.
pub async fn run<K, C, F, E>(
    settings: Settings,
    controller: Controller<K>,
    reconcile: impl Fn(Arc<K>, Arc<C>) -> F + Send + Sync + 'static,
    context: Arc<C>,
    stop: CancellationToken,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Eq + Hash + Unpin + Send + Sync + 'static,
    C: Send + Sync + 'static,
    F: Future<Output = Result<Action, E>> + Send + 'static,
    E: ReconcileError,
{
    let Settings { name, after_conflict, after_error, metrics } = settings;
    metrics.init_controller(name);
    let measured = move |object: Arc<K>, context: Arc<C>| {
        let (metrics, about) = (metrics.clone(), object.clone());
        let reconciled = reconcile(object, context);
        async move { measure(&metrics, name, &*about, reconciled).await }
    };
    let retry = move |_: Arc<K>, error: &E, _: Arc<C>| {
        Action::requeue(if error.is_conflict() { after_conflict } else { after_error })
    };
    let controller = controller.graceful_shutdown_on(stop.cancelled_owned());
    #[expect(clippy::disallowed_methods, reason = "all controllers run through this call")]
    let outcomes = controller.run(measured, retry, context);
    outcomes
        .for_each(async |outcome| match outcome {
            Ok(_) | Err(controller::Error::ReconcilerFailed(..)) => {}
            // It was deleted between the request and the reconcile.
            Err(error @ controller::Error::ObjectNotFound(_)) => {
                tracing::debug!(controller = name, error = causes(&error), "nothing to reconcile");
            }
            Err(error) => {
                tracing::warn!(controller = name, error = causes(&error), "a watch failed, watching again");
            }
        })
        .await;
}

/// Runs one reconcile, counts it and logs its error.
async fn measure<E: ReconcileError>(
    metrics: &Metrics,
    name: &'static str,
    object: &impl Resource,
    reconcile: impl Future<Output = Result<Action, E>>,
) -> Result<Action, E> {
    let running = metrics.start_reconcile(name);
    let outcome = reconcile.await;
    let result = match &outcome {
        Ok(_) => ReconcileResult::Success,
        Err(error) if error.is_conflict() => ReconcileResult::Conflict,
        Err(_) => ReconcileResult::Error,
    };
    running.end(result);
    if let Err(error) = &outcome {
        let (namespace, object, error) = (object.namespace(), object.name_any(), causes(error));
        if result == ReconcileResult::Conflict {
            tracing::debug!(controller = name, namespace, object, error, "conflict, requeueing");
        } else {
            tracing::warn!(controller = name, namespace, object, error, "reconcile failed, requeueing");
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failure {
        #[error("the object has changed")]
        Changed,
        #[error("the server does not answer")]
        Silent,
    }

    impl ReconcileError for Failure {
        fn is_conflict(&self) -> bool {
            matches!(self, Self::Changed)
        }
    }

    fn rendered(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render().expect("metrics")).expect("UTF-8")
    }

    #[tokio::test]
    async fn each_reconcile_is_counted_by_its_result() {
        let (metrics, object) = (Metrics::new().expect("metrics"), ConfigMap::default());
        metrics.init_controller("configmap");
        let failures = [None, Some(Failure::Changed), Some(Failure::Silent), Some(Failure::Silent)];
        for failure in failures {
            let outcome = failure.map_or_else(|| Ok(Action::await_change()), Err);
            let reconcile = async {
                let text = rendered(&metrics);
                assert!(text.contains(r#"active_reconciles{controller="configmap"} 1"#), "{text}");
                outcome
            };
            drop(measure(&metrics, "configmap", &object, reconcile).await);
        }
        let text = rendered(&metrics);
        for (result, count) in [("success", 1), ("conflict", 1), ("error", 2)] {
            let line = format!(
                r#"repot_controller_reconciles_total{{controller="configmap",result="{result}"}} {count}"#
            );
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        assert!(text.contains(r#"reconcile_duration_seconds_count{controller="configmap"} 4"#), "{text}");
        assert!(text.contains(r#"active_reconciles{controller="configmap"} 0"#), "{text}");
    }

    #[tokio::test]
    async fn aborted_reconcile_is_not_active_any_more() {
        let (metrics, object) = (Metrics::new().expect("metrics"), ConfigMap::default());
        let never = std::future::pending::<Result<Action, Failure>>();
        let endless = measure(&metrics, "configmap", &object, never);
        let aborted = tokio::time::timeout(Duration::from_millis(1), endless).await;
        aborted.expect_err("it does not end by itself");
        let text = rendered(&metrics);
        assert!(text.contains(r#"active_reconciles{controller="configmap"} 0"#), "{text}");
        assert!(!text.contains("reconciles_total{"), "{text}");
    }
}
