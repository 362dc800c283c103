//! DELETE of an object.

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use repot_api::names::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use repot_apimachinery::{
    field::FieldError,
    json::{Findings, Node, decode},
    meta::ObjectMeta,
    openapi::meta_types::DELETE_OPTIONS,
    protobuf,
};
use repot_storage::Object;
use serde::Deserialize;
use serde_json::json;

use super::{Answer, Request, admit, options, read, update};
use crate::{
    call::Call,
    negotiate::{self, Form},
    server::Server,
    status::Status,
    wire,
};

const TRIES: usize = 8;

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeleteOptions {
    kind: String,
    dry_run: Vec<String>,
    grace_period_seconds: Option<i64>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    preconditions: Preconditions,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Preconditions {
    /// For a collection `resourceVersion` says which list is meant.
    fn from_query(call: &Call) -> Self {
        let single = call.info.verb == "delete";
        let value = |name: &str| call.query.get(name).map(str::to_owned);
        Self { uid: value("uid"), resource_version: value("resourceVersion").filter(|_| single) }
    }
}

impl DeleteOptions {
    /// From the body, or from the parameters where there is none.
    pub(super) async fn read(server: &Server, call: &mut Call) -> Result<Self, Status> {
        let content_type = negotiate::content_type(&call.headers);
        let body = server.take_short_body(call).await?;
        let options = if body.is_empty() {
            Self::from_query(call)?
        } else if content_type == "application/json" {
            Self::from_body(&body)?
        } else if content_type == protobuf::MEDIA_TYPE {
            let unreadable = |error| Status::bad_request(format!("DeleteOptions cannot be read: {error}"));
            Self::from_body(&protobuf::delete_options(&body).map_err(unreadable)?.to_string().into())?
        } else {
            let supported = format!("application/json, {}", protobuf::MEDIA_TYPE);
            return Err(Status::unsupported_media_type(&supported));
        };
        options.check()?;
        Ok(options)
    }

    fn from_body(body: &Bytes) -> Result<Self, Status> {
        let unreadable = |why: String| Status::bad_request(format!("DeleteOptions cannot be read: {why}"));
        let mut findings = Findings::default();
        let node: Node =
            decode(body, &DELETE_OPTIONS, &mut findings).map_err(|e| unreadable(e.to_string()))?;
        if !findings.mismatches.is_empty() {
            return Err(unreadable(findings.mismatches.join(", ")));
        }
        let options: Self = serde_json::from_slice(node.to_raw().bytes())
            .map_err(|_| unreadable("not an object".to_owned()))?;
        if !matches!(options.kind.as_str(), "" | "DeleteOptions") {
            return Err(unreadable(format!("kind is {:?}", options.kind)));
        }
        Ok(options)
    }

    fn from_query(call: &Call) -> Result<Self, Status> {
        let query = &call.query;
        let grace = query.present("gracePeriodSeconds").map(|text| {
            text.parse()
                .map_err(|_| Status::bad_request(format!("gracePeriodSeconds: {text:?} is no number")))
        });
        Ok(Self {
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            grace_period_seconds: grace.transpose()?,
            orphan_dependents: query.maybe_flag("orphanDependents"),
            propagation_policy: query.present("propagationPolicy").map(str::to_owned),
            preconditions: Preconditions::from_query(call),
            ..Self::default()
        })
    }

    /// As webhooks see it.
    fn to_json(&self) -> serde_json::Value {
        let mut text = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let given = [
            ("dryRun", (!self.dry_run.is_empty()).then(|| json!(self.dry_run))),
            ("gracePeriodSeconds", self.grace_period_seconds.map(|seconds| json!(seconds))),
            ("orphanDependents", self.orphan_dependents.map(|orphan| json!(orphan))),
            ("propagationPolicy", self.propagation_policy.as_ref().map(|policy| json!(policy))),
        ];
        for (key, value) in given {
            if let Some(value) = value {
                text[key] = value;
            }
        }
        let Preconditions { uid, resource_version } = &self.preconditions;
        if uid.is_some() || resource_version.is_some() {
            text["preconditions"] = json!({"uid": uid, "resourceVersion": resource_version});
        }
        text
    }

    fn check(&self) -> Result<(), Status> {
        let mut errors = Vec::new();
        if let Some(policy) = self.propagation_policy.as_deref() {
            if self.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", policy, why));
            }
            if !matches!(policy, "Orphan" | "Background" | "Foreground") {
                let allowed = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", policy, &allowed));
            }
        }
        errors.extend(options::check_dry_run(&self.dry_run_values()));
        options::refuse("DeleteOptions", &errors)
    }

    fn dry_run_values(&self) -> Vec<&str> {
        self.dry_run.iter().map(String::as_str).collect()
    }

    /// Whether a newer state of the object may be meant as well.
    pub(super) fn may_mean_another(&self, current: &Object) -> bool {
        let same_uid = self.preconditions.uid.as_deref().is_none_or(|uid| uid == current.uid.to_string());
        same_uid && self.preconditions.resource_version.is_none()
    }

    fn dry(&self) -> bool {
        options::is_dry_run(&self.dry_run_values())
    }

    /// The finalizers with which garbage collection takes part, by the policy asked for.
    fn finalizers(&self, present: &[String]) -> Vec<String> {
        let policy = match (self.propagation_policy.as_deref(), self.orphan_dependents) {
            (Some(policy), _) => policy,
            (None, Some(true)) => "Orphan",
            (None, Some(false)) => "Background",
            (None, None) => return present.to_vec(),
        };
        let wanted = match policy {
            "Orphan" => Some(FINALIZER_ORPHAN),
            "Foreground" => Some(FINALIZER_FOREGROUND),
            _ => None,
        };
        let of_collector = |f: &&String| matches!(f.as_str(), FINALIZER_ORPHAN | FINALIZER_FOREGROUND);
        // What is decided already keeps its place.
        if present.iter().filter(of_collector).map(String::as_str).eq(wanted) {
            return present.to_vec();
        }
        let others = present.iter().filter(|f| !of_collector(f));
        others.cloned().chain(wanted.map(str::to_owned)).collect()
    }
}

/// What became of an object.
pub(super) enum Removed {
    /// It is gone, or would be.
    Gone(ObjectMeta),
    /// It waits for finalizers.
    Waiting(Object),
}

/// Deletes an object.
pub(super) async fn delete(request: Request<'_>) -> Answer {
    let form = match negotiate::form(&request.call.headers, false)? {
        Form::Table(_) => Form::Object,
        form => form,
    };
    let options = DeleteOptions::read(request.server, request.call).await?;
    for left in (0..TRIES).rev() {
        let found = request.server.store.get(&request.key()).await.map_err(|error| request.failed(&error))?;
        let current = found.ok_or_else(|| request.not_found())?;
        read::reserve_to_delete(&request, std::slice::from_ref(&current), 1).await?;
        match remove(&request, &options, &current).await {
            Err(status)
                if status.reason() == "Conflict" && left > 0 && options.may_mean_another(&current) => {}
            Err(status) => return Err(status),
            Ok(Removed::Gone(meta)) => return Ok(success(&request, &current.key.name, &meta)),
            Ok(Removed::Waiting(object)) => {
                let mut response = update::show(&request, &object, form).await;
                // Only who asked for the old form of cascading is told that it goes on.
                if options.orphan_dependents == Some(false) {
                    *response.status_mut() = StatusCode::ACCEPTED;
                }
                return Ok(response);
            }
        }
    }
    Err(Status::modified(&request.resource.name, &request.target.name))
}

/// Removes an object, or begins its deletion where finalizers are left.
pub(super) async fn remove(
    request: &Request<'_>,
    options: &DeleteOptions,
    current: &Object,
) -> Result<Removed, Status> {
    expect(request, options, current)?;
    let dry = options.dry();
    admit::judge_removal(request, dry, options.to_json(), current).await?;
    let mut meta = wire::parse_meta(current);
    let first = !meta.deleting();
    // Deletion has no grace here that could be pending, so a later one may still choose what becomes of dependents.
    let finalizers = options.finalizers(&meta.finalizers);
    if finalizers.is_empty() {
        if !dry {
            request.server.store.delete(current).await.map_err(|error| request.failed(&error))?;
        }
        return Ok(Removed::Gone(meta));
    }
    if !first && finalizers == meta.finalizers {
        return Ok(Removed::Waiting(current.clone()));
    }
    meta.finalizers = finalizers;
    if first {
        meta.deletion_timestamp = Some(wire::now());
        meta.deletion_grace_period_seconds = Some(0);
        meta.generation += 1;
    }
    update::rest_meta(request, dry, &meta, current).await.map(Removed::Waiting)
}

fn expect(request: &Request<'_>, options: &DeleteOptions, current: &Object) -> Result<(), Status> {
    let conflict = |what: &str, wanted: &str, found: &str| {
        let why =
            format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
        Err(Status::conflict(&request.resource.name, &current.key.name, &why))
    };
    let (uid, version) = (current.uid.to_string(), current.version.to_string());
    match (&options.preconditions.uid, &options.preconditions.resource_version) {
        (Some(wanted), _) if *wanted != uid => conflict("UID", wanted, &uid),
        (_, Some(wanted)) if *wanted != version => conflict("ResourceVersion", wanted, &version),
        _ => Ok(()),
    }
}

fn success(request: &Request<'_>, name: &str, meta: &ObjectMeta) -> Response<Body> {
    let resource = &request.resource.name;
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": name, "group": resource.group, "kind": resource.resource, "uid": meta.uid},
    });
    wire::whole(StatusCode::OK, status.to_string())
}
