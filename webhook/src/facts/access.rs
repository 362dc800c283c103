//! Facts that are asked for one change only: Bastions of a Shoot, and what a user may do.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use repot_api::names::{CORE_GROUP, OPERATIONS_GROUP, V1ALPHA1, VERB_FORCE};
use repot_rules::{
    change::{User, text_at},
    facts::Needs,
};

use super::Error;

/// Whether the user of a change may use the verb `force-migration` on its Shoot, as the authorizers of the cluster say.
///
/// # Errors
/// [`Error::Live`].
pub(super) async fn may_force(client: &Client, needs: &Needs, user: &User) -> Result<bool, Error> {
    let Some((namespace, name)) = &needs.may_force else { return Ok(false) };
    let attributes = ResourceAttributes {
        group: Some(CORE_GROUP.to_owned()),
        resource: Some("shoots".to_owned()),
        verb: Some(VERB_FORCE.to_owned()),
        namespace: Some(namespace.clone()),
        name: Some(name.clone()),
        ..ResourceAttributes::default()
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            extra: Some(user.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api = Api::<SubjectAccessReview>::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    let failed = |source| Error::Live { what: "subjectaccessreviews".to_owned(), source: Box::new(source) };
    Ok(answer.map_err(failed)?.status.is_some_and(|status| status.allowed && !status.denied.unwrap_or(false)))
}

/// Names of the Bastions of the Shoot that a change is about; none where the cluster does not serve Bastions.
///
/// # Errors
/// [`Error::Live`].
pub(super) async fn bastions(client: &Client, needs: &Needs) -> Result<Vec<String>, Error> {
    let Some((namespace, shoot)) = &needs.bastions_of else { return Ok(Vec::new()) };
    let kind = GroupVersionKind::gvk(OPERATIONS_GROUP, V1ALPHA1, "Bastion");
    let resource = ApiResource::from_gvk_with_plural(&kind, "bastions");
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let list = match api.list(&ListParams::default()).await {
        Ok(list) => list.items,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
        Err(source) => return Err(Error::Live { what: "bastions".to_owned(), source: Box::new(source) }),
    };
    let of_shoot = |bastion: &DynamicObject| text_at(&bastion.data, "/spec/shootRef/name") == Some(shoot);
    Ok(list.into_iter().filter(of_shoot).filter_map(|bastion| bastion.metadata.name).collect())
}
