//! Server-side apply: a PATCH that says what its manager wants, and creates what is not there.

use std::sync::Arc;

use repot_apimachinery::{
    document::{self, Document},
    field::FieldError,
    json::{Key, Node},
    kind::Kind,
    managed::{self, Applied, Conflict},
    meta::ObjectMeta,
};
use repot_storage::Object;

use super::{
    Answer, Request, create, decode,
    encode::Origin,
    found::Found,
    options::{FieldValidation, WriteOptions},
    read::{self, Source},
    tracking::Owner,
    update, validate,
};
use crate::{
    filters::request_info::RequestInfo,
    heavy::{NotDone, UserWork},
    memory::MemoryEstimate,
    needs,
    status::Status,
    wire,
};

/// The content type that asks for it.
pub(super) const CONTENT_TYPE: &str = "application/apply-patch+yaml";
/// How often an apply that names no version is tried against concurrent writes.
const TRIES: usize = 8;

/// What is applied, and how.
struct Apply {
    config: Arc<Document>,
    manager: String,
    force: bool,
    /// Whether only a certain version is meant.
    named: bool,
    /// What it takes in memory.
    needs: MemoryEstimate,
    /// Bytes that were sent.
    length: usize,
}

/// Applies a configuration.
pub(super) async fn apply(mut request: Request<'_>) -> Answer {
    let write = WriteOptions::parse(&request, "PatchOptions")?;
    let mut warnings = Vec::new();
    let (apply, mut found) = read(&mut request, &write, &mut warnings).await?;
    for left in (0..TRIES).rev() {
        let mut warnings = warnings.clone();
        let (done, retry) = match found.take(&request).await? {
            Some(current) => (replace(&request, &write, &apply, &current, &mut warnings).await, "Conflict"),
            None => (bring_about(&request, &write, &apply, &mut warnings).await, "AlreadyExists"),
        };
        match done {
            // Nobody asked for a certain version: the configuration is applied to what is there now.
            Ok(Err(status)) if status.reason() == retry && !apply.named && left > 0 => {}
            Ok(Err(status)) | Err(status) => return Err(status),
            Ok(Ok(mut response)) => {
                wire::warn(&mut response, &warnings);
                return Ok(response);
            }
        }
    }
    Err(Status::modified(&request.resource.name, &request.target.name))
}

async fn read(
    request: &mut Request<'_>,
    write: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<(Apply, Found), Status> {
    let Some(manager) = request.call.query.get("fieldManager").map(str::to_owned) else {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(Status::invalid(("meta.k8s.io", "PatchOptions"), "", &[error]));
    };
    let force = request.call.query.flag("force");
    let sent = request.server.receive(request.call).await?;
    let found = Found::look(request).await;
    let old = found.payload_len();
    let source = Source::open(request, sent, true, |needs| needs.lay_over(old), needs::applied).await?;
    let read = source.decode(request).await?;
    let (mut config, strict) = read.map_err(|error| Status::bad_request(error.to_string()))?;
    decode::expect_kind(request, &config)?;
    if config.meta.managed_fields.is_some() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if config.meta.name.is_empty() {
        config.meta.name.clone_from(&request.target.name);
    }
    decode::default_name_and_namespace(request, &mut config.meta)?;
    if !request.target.subresource.is_empty() {
        // Its metadata goes no further.
        validate::refuse_trimmed(request, &config.meta)?;
    }
    refuse_findings(request, write, &config, strict, warnings)?;
    confine(request, &mut config.body, warnings);
    let named = !config.meta.resource_version.is_empty();
    let (config, length) = (Arc::new(config), source.length());
    Ok((Apply { config, manager, force, named, needs: source.needs, length }, found))
}

/// Nobody can own a field that is not declared, so such a configuration is refused whatever the client says about
/// unknown fields, and so is one that says a list element twice.
fn refuse_findings(
    request: &Request<'_>,
    write: &WriteOptions,
    config: &Document,
    strict: Vec<String>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let kind = request.resource.kind;
    let (unknown, twice): (Vec<_>, Vec<_>) =
        strict.into_iter().partition(|finding| finding.starts_with("unknown field"));
    let mut wrong = unknown;
    wrong.extend(managed::merge::duplicates(&config.body, kind.schema));
    if !wrong.is_empty() {
        let (namespace, name) = (&request.target.namespace, &request.target.name);
        return Err(Status::bad_request(format!(
            "failed to create typed patch object ({namespace}/{name}; {}, Kind={}): {}",
            request.resource.api_version(),
            kind.kind,
            wrong.join(", ")
        )));
    }
    match write.validation {
        FieldValidation::Strict if !twice.is_empty() => {
            Err(Status::bad_request(format!("error strict decoding YAML: {}", twice.join(", "))))
        }
        FieldValidation::Warn => {
            warnings.extend(twice);
            Ok(())
        }
        FieldValidation::Strict | FieldValidation::Ignore => Ok(()),
    }
}

/// Keeps what can be written here: everything but the status, or nothing but the subresource. Older shapes become new.
fn confine(request: &Request<'_>, body: &mut Node, warnings: &mut Vec<String>) {
    let subresource = &request.target.subresource;
    if !subresource.is_empty() {
        let part = body.take(subresource);
        *body = Node::object();
        if let (Some(part), Some(field)) = (part, request.resource.kind.schema.field(subresource)) {
            body.set(field.name, part);
        }
        return;
    }
    body.take("status");
    // Nothing else is brought into today's form: who applies owns what it says, and not what is said for it.
    let schema = request.resource.kind.schema;
    let of_old = |(key, _): &(Key, Node)| schema.field(key.text()).is_some_and(|field| field.hidden);
    if body.members().iter().any(of_old) {
        warnings.extend((request.resource.strategy.normalise)(body));
    }
}

/// Applies to what is there. The outer error is final, the inner one may be a concurrent write.
async fn replace(
    request: &Request<'_>,
    write: &WriteOptions,
    apply: &Apply,
    current: &Object,
    warnings: &mut Vec<String>,
) -> Result<Answer, Status> {
    let meta = read::cost_of_meta(current, needs::applied);
    request.server.reserve(request.call, apply.needs.lay_over(current.payload_len) + meta).await?;
    let payload =
        request.server.store.payload_bytes(current).await.map_err(|error| request.failed(&error))?;
    read::charge_payload(request, &payload, needs::applied).await?;
    let kind = request.resource.kind;
    let tree = document::tree("", kind.kind, bytes::Bytes::from_static(b"{}"), &payload);
    let conform = move || Document::conform(tree, kind);
    let read = read::heavy(request, payload.len(), conform).await?;
    let (live, _) =
        read.map_err(|error| Status::internal(format!("the object at rest is unreadable: {error}")))?;
    let before = wire::parse_meta(current);
    let asked = &apply.config.meta;
    update::expect_uid(request, asked, current)?;
    let uid = before.uid.clone();
    let length = read::length_with(current, apply.length + current.meta.len());
    let mut document = lay_over(request, apply, Some((before, live.body)), length, warnings, write).await?;
    document.meta.uid = uid;
    document.meta.resource_version = match apply.named {
        true => asked.resource_version.clone(),
        false => current.version.to_string(),
    };
    update::expect_same(request, &document.meta, current)?;
    Ok(update::replace(request, write, &mut document, current, Origin::Applied).await)
}

/// Creates what is not there, which takes the permission to create.
async fn bring_about(
    request: &Request<'_>,
    write: &WriteOptions,
    apply: &Apply,
    warnings: &mut Vec<String>,
) -> Result<Answer, Status> {
    if !request.target.subresource.is_empty() {
        return Err(request.not_found());
    }
    let resource = &request.resource.name;
    let asked = &apply.config.meta;
    if !asked.uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {}, and no existing object was found",
            asked.uid
        );
        return Err(Status::conflict(resource, &request.target.name, &why));
    }
    if apply.named {
        return Err(Status::modified(resource, &request.target.name));
    }
    let info = RequestInfo { verb: "create", ..request.call.info.clone() };
    request.server.authorizer.authorize(&request.call.user, &info).await?;
    let mut document = lay_over(request, apply, None, apply.length, warnings, write).await?;
    document.meta.name.clone_from(&asked.name);
    document.meta.namespace.clone_from(&asked.namespace);
    Ok(create::persist_new(request, write, document, Origin::Applied).await)
}

/// The configuration over what is there, as an object to be judged like any other. `length`: of both, in bytes.
async fn lay_over(
    request: &Request<'_>,
    apply: &Apply,
    live: Option<(ObjectMeta, Node)>,
    length: usize,
    warnings: &mut Vec<String>,
    write: &WriteOptions,
) -> Result<Document, Status> {
    let owner = Owner::of(request, apply.manager.clone());
    let api_version = owner.api_version.clone();
    let (kind, config, force) = (request.resource.kind, Arc::clone(&apply.config), apply.force);
    let overlay = Overlay { kind, live, config, force, owner };
    let applied = overlay.apply(&request.work(), length).await.map_err(read::not_done)?;
    let Applied { meta, body } = applied.map_err(|conflicts| Status::apply_conflict(&conflicts))?;
    let document = Document { api_version, kind: apply.config.kind.clone(), meta, body, source: None };
    decode::admit(request, Ok((document, Vec::new())), write, warnings)
}

/// A configuration and what it is laid over.
struct Overlay {
    kind: &'static Kind,
    live: Option<(ObjectMeta, Node)>,
    config: Arc<Document>,
    force: bool,
    owner: Owner,
}

impl Overlay {
    /// `length`: of both, in bytes.
    async fn apply(self, work: &UserWork, length: usize) -> Result<Result<Applied, Vec<Conflict>>, NotDone> {
        let apply = move || {
            let nothing = ObjectMeta::default();
            let meta = if self.owner.subresource.is_empty() { &self.config.meta } else { &nothing };
            let live = self.live.as_ref().map(|(meta, body)| (meta, body));
            managed::apply(self.kind, live, (meta, &self.config.body), self.force, self.owner.writer())
        };
        work.run_sized(length, apply).await
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;
    use crate::{endpoints::tracking::tests::owner, heavy::LIGHT};

    #[tokio::test]
    async fn large_configurations_are_laid_over_on_the_threads_for_heavy_work() {
        let work = UserWork::for_tests();
        let _held = work.hold();
        for (length, waits) in [(LIGHT, false), (LIGHT + 1, true)] {
            let (meta, body) = (ObjectMeta::default(), Node::object());
            let config =
                Document { api_version: String::new(), kind: String::new(), meta, body, source: None };
            let (kind, config) = (&repot_api::shoot_state::KIND_INFO, Arc::new(config));
            let overlay = Overlay { kind, live: None, config, force: false, owner: owner() };
            assert_eq!(poll!(Box::pin(overlay.apply(&work, length))).is_pending(), waits, "{length} bytes");
        }
    }
}
