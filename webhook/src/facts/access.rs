//! Facts that are asked for one change only: Bastions of a Shoot, and what a user may do.

use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use repot_api::names::{OPERATIONS_GROUP, V1ALPHA1};
use repot_rules::{change::text_at, facts::Needs};

use super::Error;

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
