//! Whether the user may do what the request asks for.

use crate::{
    delegation::AccessReviewer,
    filters::{
        request_info::{RequestInfo, Target},
        user::{MASTERS, User},
    },
    resource::GroupResource,
    status::Status,
};

/// Paths that everybody may read: probes come without credentials.
pub(crate) const ALWAYS_ALLOWED: &[&str] = &["/healthz", "/livez", "/readyz"];

/// Decides about requests.
pub struct Authorizer {
    reviewer: Option<AccessReviewer>,
}

impl Authorizer {
    /// `reviewer`: who knows what users may do; without one only [`MASTERS`] may do anything.
    #[must_use]
    pub fn new(reviewer: Option<AccessReviewer>) -> Self {
        Self { reviewer }
    }

    /// Lets the request pass or says why not.
    ///
    /// # Errors
    /// 403 when the user may not; 500 when nobody could tell.
    pub async fn authorize(&self, user: &User, info: &RequestInfo) -> Result<(), Status> {
        if user.in_group(MASTERS) || ALWAYS_ALLOWED.contains(&info.path.as_str()) {
            return Ok(());
        }
        let why = match &self.reviewer {
            Some(reviewer) => match reviewer.review(user, info).await? {
                None => return Ok(()),
                Some(why) => why,
            },
            None => String::new(),
        };
        Err(denied(user, info, &why))
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
