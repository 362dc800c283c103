//! Whether the user may do what the request asks for.

use crate::{
    audit::policy::path_matches,
    delegation::{AccessReviewer, Verdict},
    filters::{
        request_info::{RequestInfo, Target},
        user::{MASTERS, User},
    },
    resource::GroupResource,
    status::Status,
};

/// Where probes look, without credentials.
pub const PROBES: &[&str] = &["/healthz", "/livez", "/readyz"];

/// Decides whether a user may make a request.
pub struct Authorizer {
    reviewer: Option<AccessReviewer>,
    /// Paths that everybody may use, with `*` at the end for all that begin so.
    open_paths: Vec<String>,
}

impl Authorizer {
    /// `reviewer`: who knows what users may do; without one only [`MASTERS`] may do anything.
    #[must_use]
    pub fn new(reviewer: Option<AccessReviewer>) -> Self {
        Self { reviewer, open_paths: PROBES.iter().map(|path| (*path).to_owned()).collect() }
    }

    /// The same with other paths that everybody may use than [`PROBES`].
    #[must_use]
    pub fn with_open_paths(self, open_paths: Vec<String>) -> Self {
        Self { open_paths, ..self }
    }

    /// Lets the request pass or says why not. The text is why it may pass, for the audit log.
    ///
    /// # Errors
    /// 403 when the user may not; 500 when nobody could tell.
    pub async fn authorize(&self, user: &User, info: &RequestInfo) -> Result<String, Status> {
        let open = |path: &String| path_matches(path, &info.path);
        if user.in_group(MASTERS) || (info.target.is_none() && self.open_paths.iter().any(open)) {
            return Ok(String::new());
        }
        let verdict = match &self.reviewer {
            Some(reviewer) => reviewer.review(user, info).await?,
            None => Verdict::default(),
        };
        if verdict.allowed { Ok(verdict.reason) } else { Err(denied(user, info, &verdict.reason)) }
    }
}

fn denied(user: &User, info: &RequestInfo, why: &str) -> Status {
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let Some(target) = &info.target else {
        return Status::forbidden_path(&format!(
            "User {:?} cannot {} path {:?}{why}",
            user.name, info.verb, info.path
        ));
    };
    let Target { group, resource, subresource, namespace, name, .. } = target;
    let full = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let place = if namespace.is_empty() {
        " at the cluster scope".to_owned()
    } else {
        format!(" in the namespace {namespace:?}")
    };
    let message = format!(
        "User {:?} cannot {} resource {full:?} in API group {group:?}{place}{why}",
        user.name, info.verb
    );
    Status::forbidden(&GroupResource { group: group.clone(), resource: resource.clone() }, name, &message)
}
