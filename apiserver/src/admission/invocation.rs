//! A request as webhooks are shown it, and what becomes of their answers.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use repot_apimachinery::{
    document::{self, Document},
    json::Node,
};
use repot_storage::{Object, ResourceVersion};
use serde_json::json;
use tracing::{Instrument, Span, field::Empty};
use uuid::Uuid;

use super::{
    Attributes, Operation, call,
    conditions::{self, Json, Members, UsedVariables, Variables},
    denial::denied,
    follow::Cluster,
    hook::Hook,
    matching::{self, Subject},
    mutation,
    review::{self, Printed, Verdict},
};
use crate::{memory::MemoryPermit, resource::Resource, status::Status, wire};

/// How asking a webhook can fail.
enum Failure {
    /// The failure policy decides.
    Calling(String),
    /// The webhook said no.
    Denied(Status),
    /// Whatever the policy says, the request cannot go on.
    Fatal(Status),
}

/// A request and what of it has been printed for webhooks so far.
pub(super) struct WebhookInvocation<'a> {
    attributes: &'a Attributes<'a>,
    cluster: &'a Cluster,
    old: Option<&'a Object>,
    /// `Err`: too large to be shown, and about how large.
    object_text: Option<Result<Printed, usize>>,
    /// The same.
    old_text: Option<Result<Printed, usize>>,
    held: Vec<MemoryPermit>,
    namespace_labels: Option<BTreeMap<String, String>>,
}

impl<'a> WebhookInvocation<'a> {
    pub(super) fn new(attributes: &'a Attributes<'a>, cluster: &'a Cluster, old: Option<&'a Object>) -> Self {
        Self {
            attributes,
            cluster,
            old,
            object_text: None,
            old_text: None,
            held: Vec::new(),
            namespace_labels: None,
        }
    }

    /// Whether a webhook has to be asked.
    pub(super) async fn concerns(
        &mut self,
        hook: &Hook,
        document: Option<&Document>,
    ) -> Result<bool, Status> {
        if !matching::any_rule(&hook.rules, &subject(self.attributes)) {
            return Ok(false);
        }
        let unreadable = |error: matching::BadSelector| Status::internal(error.to_string());
        if !matching::is_empty(hook.objects.as_ref()) {
            let selects = |labels: &BTreeMap<String, String>| {
                matching::selects(hook.objects.as_ref(), labels).map_err(unreadable)
            };
            let new = document.map_or(Ok(false), |document| selects(&document.meta.labels))?;
            let old = self.old.map_or(Ok(false), |old| selects(&wire::parse_meta(old).labels))?;
            if !new && !old {
                return Ok(false);
            }
        }
        let namespaced = !self.attributes.target.namespace.is_empty();
        if namespaced && !matching::is_empty(hook.namespaces.as_ref()) {
            let labels = self.namespace_labels().await?;
            if !matching::selects(hook.namespaces.as_ref(), labels).map_err(unreadable)? {
                return Ok(false);
            }
        }
        if hook.conditions.is_empty() {
            return Ok(true);
        }
        let variables = self.variables(&hook.conditions.needs(), document).await?;
        match hook.conditions.hold(variables).await {
            Ok(hold) => Ok(hold),
            Err(why) if hook.ignore_failure => {
                tracing::warn!(webhook = hook.name, why, "match conditions failed, passing the webhook over");
                Ok(false)
            }
            Err(why) => {
                tracing::warn!(webhook = hook.name, why, "match conditions failed, ending the request");
                Err(Status::forbidden(&self.attributes.resource.name, &self.attributes.name, &why))
            }
        }
    }

    /// What match conditions look at, and no more: a payload is neither read nor printed for an expression about labels.
    async fn variables(
        &self,
        needs: &UsedVariables,
        document: Option<&Document>,
    ) -> Result<Variables, Status> {
        let mut variables = Variables::default();
        if let Some(document) = document.filter(|_| needs.names("object")) {
            variables.object = members(tree(self.attributes.resource, document), &needs.object);
        }
        if let Some(old) = self.old.filter(|_| needs.names("oldObject")) {
            variables.old = self.old_members(old, &needs.old).await?;
        }
        if needs.names("request") {
            variables.request = review::request(self.attributes).to_string().into();
        }
        Ok(variables)
    }

    async fn old_members(&self, old: &Object, needed: &Members) -> Result<Json, Status> {
        let Attributes { server, resource, .. } = self.attributes;
        let mut payload = Bytes::new();
        if needed.beyond_metadata() {
            if old.payload_len > conditions::MAX_BYTES as u64 {
                return Ok(Json::oversized(usize::try_from(old.payload_len).unwrap_or(usize::MAX)));
            }
            let read = server.store.payload_bytes(old).await;
            payload =
                read.map_err(|error| crate::status::from_storage(&error, &resource.name, &old.key.name))?;
        }
        let meta = wire::meta_json(&old.meta, old.version).freeze();
        Ok(members(document::tree(&resource.api_version(), resource.kind.kind, meta, &payload), needed))
    }

    async fn namespace_labels(&mut self) -> Result<&BTreeMap<String, String>, Status> {
        if self.namespace_labels.is_none() {
            let Attributes { server, target, .. } = self.attributes;
            self.namespace_labels = Some(server.namespaces.labels(&target.namespace).await?);
        }
        Ok(self.namespace_labels.get_or_insert_default())
    }

    /// Prints the objects where that has not been done.
    pub(super) async fn print(&mut self, document: Option<&Document>) -> Result<(), Status> {
        if self.object_text.is_none() {
            self.object_text = Some(match document {
                None => Ok(Printed::null()),
                // What cannot be shown anyway is not printed. The measure is rough, and a little too long.
                Some(document) if document.body.size() / 2 > self.cluster.max_review_bytes => {
                    Err(document.body.size())
                }
                Some(document) => Ok(print(self.attributes, document)),
            });
        }
        if self.old_text.is_none() {
            let printed = match self.old {
                None => Ok(Printed::null()),
                Some(old) => self.print_old(old).await?,
            };
            self.old_text = Some(printed);
        }
        Ok(())
    }

    async fn print_old(&mut self, old: &Object) -> Result<Result<Printed, usize>, Status> {
        let Attributes { server, resource, .. } = self.attributes;
        let length = usize::try_from(wire::object_len(resource, old)).unwrap_or(usize::MAX);
        let beside = match &self.object_text {
            Some(Ok(printed)) => printed.len(),
            Some(Err(length)) => *length,
            None => 0,
        };
        // What cannot be shown anyway is not read.
        if beside.saturating_add(length) > self.cluster.max_review_bytes {
            return Ok(Err(length));
        }
        // A write has room for it; a removal has none at all.
        if self.attributes.operation == Operation::Delete {
            self.held.push(server.room(self.attributes.call, old.payload_len).await?);
        }
        let payload = server.store.payload_bytes(old).await;
        let payload =
            payload.map_err(|error| crate::status::from_storage(&error, &resource.name, &old.key.name))?;
        let before = wire::before_stored(resource, old).freeze();
        Ok(Ok(Printed(vec![before, payload, Bytes::from_static(b"}")])))
    }

    /// Asks a webhook and applies its patch; gives whether the object is another now.
    pub(super) async fn call_mutating(
        &mut self,
        hook: &Hook,
        document: Option<&mut Document>,
    ) -> Result<bool, Status> {
        let Some(patch) = self.ask(hook).await?.and_then(|verdict| verdict.patch) else { return Ok(false) };
        if patch.trim_ascii() == b"[]" {
            return Ok(false);
        }
        let name = &hook.name;
        let Some(document) = document else {
            let why = "attempted to modify the object, which is not supported for this operation";
            return Err(Status::internal(format!("admission webhook {name:?} {why}")));
        };
        let Attributes { server, resource, .. } = self.attributes;
        let changed = mutation::apply(document, &patch, resource.strategy, server.limits.object_bytes);
        let changed = changed.map_err(|why| {
            Status::internal(format!("the patch of admission webhook {name:?} cannot be applied: {why}"))
        })?;
        if changed {
            self.object_text = None;
        }
        Ok(changed)
    }

    /// Asks a webhook. `None`: it failed, and its policy is to be passed over then.
    pub(super) async fn ask(&self, hook: &Hook) -> Result<Option<Verdict>, Status> {
        let (began, span) = (Instant::now(), self.span(hook));
        let asked = self.put(hook).instrument(span.clone()).await;
        span.record("admission.outcome", outcome(&asked, hook));
        let (counters, operation) =
            (&self.attributes.server.metrics.admission, self.attributes.operation.name());
        let (name, kind) = (hook.name.as_str(), if hook.mutating { "admit" } else { "validating" });
        let settled = match asked {
            Ok(verdict) => Ok(Some(verdict)),
            Err(Failure::Calling(why)) if hook.ignore_failure => {
                tracing::warn!(webhook = name, why, "webhook failed, passing it over");
                counters.failed_open(name, kind);
                self.annotate(format!("failed-open.{kind}.webhook.admission.k8s.io/{name}"), name.to_owned());
                Ok(None)
            }
            Err(Failure::Calling(why)) => {
                tracing::warn!(webhook = name, why, "webhook failed, ending the request");
                counters.rejected("calling_webhook_error", name, operation, kind, 500);
                Err(Status::internal(format!("failed calling webhook {name:?}: {why}")))
            }
            Err(Failure::Denied(status)) => {
                counters.rejected("no_error", name, operation, kind, status.code().as_u16());
                Err(status)
            }
            Err(Failure::Fatal(status)) => {
                counters.rejected("apiserver_internal_error", name, operation, kind, 0);
                Err(status)
            }
        };
        counters.asked(name, operation, kind, settled.is_err(), began.elapsed());
        settled
    }

    /// What a trace tells of asking a webhook, under kube-apiserver's names.
    fn span(&self, hook: &Hook) -> Span {
        let Attributes { resource, target, operation, .. } = self.attributes;
        let name = if hook.mutating { "Call mutating webhook" } else { "Call validating webhook" };
        tracing::trace_span!(
            "webhook",
            otel.name = name,
            otel.kind = "client",
            configuration = hook.configuration(),
            webhook = hook.name,
            resource = %resource.name,
            subresource = target.subresource,
            operation = operation.name(),
            UID = Empty,
            admission.outcome = Empty,
        )
    }

    async fn put(&self, hook: &Hook) -> Result<Verdict, Failure> {
        let Attributes { dry_run, call, .. } = self.attributes;
        if *dry_run && !hook.dry_run {
            let why = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(Failure::Fatal(Status::bad_request(why)));
        }
        let Some(version) = hook.version else {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Failure::Calling(why.to_owned()));
        };
        let uid = Uuid::new_v4().to_string();
        Span::current().record("UID", &uid);
        let question = self.question(&uid, version)?;
        let text = call::ask(hook, &self.cluster.services, &question, self.left()).await;
        let verdict = review::answer(&text.map_err(Failure::Calling)?, &uid, version, hook.mutating);
        let invalid = |why| Failure::Calling(format!("received invalid webhook response: {why}"));
        let verdict = verdict.map_err(invalid)?;
        for (key, value) in &verdict.annotations {
            self.annotate(format!("{}/{key}", hook.name), value.clone());
        }
        call.notes.lock().warnings.extend(verdict.warnings.iter().cloned());
        if verdict.allowed { Ok(verdict) } else { Err(Failure::Denied(denied(&hook.name, verdict.status))) }
    }

    fn question(&self, uid: &str, version: review::Version) -> Result<Printed, Failure> {
        let (limit, none) = (self.cluster.max_review_bytes, Printed::null());
        let too_large = |length: usize| {
            Failure::Calling(format!(
                "the AdmissionReview would have {length} bytes, which is more than --max-admission-review-bytes={limit}"
            ))
        };
        let object = match &self.object_text {
            None => &none,
            Some(Ok(object)) => object,
            Some(Err(length)) => return Err(too_large(*length)),
        };
        let old = match &self.old_text {
            None => &none,
            Some(Ok(old)) => old,
            Some(Err(length)) => return Err(too_large(object.len() + length)),
        };
        let question = review::question(uid, version, self.attributes, object, old);
        if question.len() > limit { Err(too_large(question.len())) } else { Ok(question) }
    }

    /// What is left of the time of the whole request.
    fn left(&self) -> Duration {
        let Attributes { server, call, .. } = self.attributes;
        server.limits.request_timeout.saturating_sub(call.began.elapsed())
    }

    fn annotate(&self, key: String, value: String) {
        self.attributes.call.notes.lock().annotations.push((key, value));
    }

    /// For the audit log: who changed something. What was changed is payload, and stays out of it.
    pub(super) fn annotate_change(&self, round: usize, at: usize, hook: &Hook, changed: bool) {
        let value = json!({"configuration": hook.configuration(), "webhook": hook.name, "mutated": changed});
        self.annotate(
            format!("mutation.webhook.admission.k8s.io/round_{round}_index_{at}"),
            value.to_string(),
        );
    }
}

/// What came of asking a webhook, for traces.
fn outcome(asked: &Result<Verdict, Failure>, hook: &Hook) -> &'static str {
    match asked {
        Ok(_) => "allowed",
        Err(Failure::Denied(_)) => "denied",
        Err(Failure::Calling(_)) if hook.ignore_failure => "failed-open",
        Err(Failure::Calling(_) | Failure::Fatal(_)) => "failed",
    }
}

/// An object of which nothing has been printed.
fn tree(resource: &Resource, document: &Document) -> Node {
    let meta = serde_json::to_vec(&document.meta).unwrap_or_default();
    let mut root = document::tree(&resource.api_version(), resource.kind.kind, meta.into(), &Bytes::new());
    if let (Node::Object(all), Node::Object(body)) = (&mut root, &document.body) {
        // Opaque values are shared, not copied.
        all.extend(body.iter().cloned());
    }
    root
}

fn members(root: Node, needed: &Members) -> Json {
    let Node::Object(members) = root else { return Json::default() };
    let needed = members.into_iter().filter(|(key, _)| needed.has(key.text()));
    Json::members(needed.map(|(key, value)| (key.text().to_owned(), value.to_raw().into_bytes())).collect())
}

fn print(attributes: &Attributes<'_>, document: &Document) -> Printed {
    let meta = serde_json::to_vec(&document.meta).unwrap_or_default();
    let version = document.meta.resource_version.parse().ok().map(ResourceVersion);
    let payload = document.print().text;
    let before = wire::before_payload(attributes.resource, &meta, version, !payload.is_empty());
    let pieces = vec![before.freeze(), payload, Bytes::from_static(b"}")];
    Printed(pieces)
}

/// The parts of a request that rules look at.
pub(super) fn subject<'a>(attributes: &'a Attributes<'_>) -> Subject<'a> {
    Subject {
        operation: attributes.operation,
        group: &attributes.resource.name.group,
        version: &attributes.resource.version,
        resource: &attributes.resource.name.resource,
        subresource: &attributes.target.subresource,
        namespace: &attributes.target.namespace,
    }
}
