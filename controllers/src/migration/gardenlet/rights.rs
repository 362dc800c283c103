//! Which rights this controller does not have. They belong to a role that is installed only where gardenlet carries out migrations.

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use crate::migration::error::{Error, Result};

/// A right to something in a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// Group of the API, such as `core.gardener.cloud`.
    pub group: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Its subresource; empty for the resource itself.
    pub subresource: &'static str,
    /// The verb that is asked for.
    pub verb: &'static str,
}

/// Each of these rights that is missing in a namespace, in words, with the file that has them.
///
/// # Errors
/// [`Error::Write`] where the API server does not answer the question.
pub async fn missing(client: &Client, namespace: &str, rights: &[Right], file: &str) -> Result<Vec<String>> {
    let asked = rights.iter().map(async |right| {
        let is_allowed = is_allowed(client, namespace, right).await?;
        let Right { resource, subresource, verb, .. } = right;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let words = || {
            format!("this controller may not {verb} {resource}{slash}{subresource}; apply deploy/rbac/{file}")
        };
        Ok::<_, Error>((!is_allowed).then(words))
    });
    Ok(try_join_all(asked).await?.into_iter().flatten().collect())
}

async fn is_allowed(client: &Client, namespace: &str, right: &Right) -> Result<bool> {
    let attributes = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        group: Some(right.group.to_owned()),
        resource: Some(right.resource.to_owned()),
        subresource: Some(right.subresource.to_owned()),
        verb: Some(right.verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await;
    let answer = answer.map_err(Error::write("ask for the own rights"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
