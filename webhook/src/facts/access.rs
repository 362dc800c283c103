//! Facts that are asked for one change only: Bastions of a Shoot, and what a user may do.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use repot_api::names::{CORE_GROUP, OPERATIONS_GROUP, V1ALPHA1, VERB_FORCE};
use repot_apimachinery::value::text_at;
use repot_rules::{change::User, facts::RequiredFacts};

use super::Error;

/// Whether the user of a change may use the verb `force-migration` on its Shoot, as the authorizers of the cluster say.
///
/// # Errors
/// [`Error::Live`].
pub(super) async fn may_force(client: &Client, needs: &RequiredFacts, user: &User) -> Result<bool, Error> {
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
pub(super) async fn bastions(client: &Client, needs: &RequiredFacts) -> Result<Vec<String>, Error> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::scripted;

    fn needs() -> RequiredFacts {
        let shoot = Some(("garden-p".to_owned(), "s".to_owned()));
        RequiredFacts { may_force: shoot.clone(), bastions_of: shoot, ..RequiredFacts::default() }
    }

    #[tokio::test]
    async fn asks_whether_the_user_may_use_the_verb() {
        let user = User {
            name: "alice".to_owned(),
            groups: vec!["team".to_owned()],
            uid: "7".to_owned(),
            extra: BTreeMap::from([("scope".to_owned(), vec!["all".to_owned()])]),
        };
        let answers: [scripted::Answer; 3] = [
            |_| (201, json!({"spec": {}, "status": {"allowed": true}})),
            |_| (201, json!({"spec": {}, "status": {"allowed": true, "denied": true}})),
            |_| (201, json!({"spec": {}, "status": {"allowed": false}})),
        ];
        for (answer, expected) in answers.into_iter().zip([true, false, false]) {
            let (client, asked) = scripted::client(answer);
            assert_eq!(may_force(&client, &needs(), &user).await.expect("an answer"), expected);
            let (method, path, body) = asked.lock().pop().expect("one question");
            assert_eq!(
                (method.as_str(), path.split('?').next()),
                ("POST", Some("/apis/authorization.k8s.io/v1/subjectaccessreviews"))
            );
            let spec = json!({
                "user": "alice", "groups": ["team"], "uid": "7", "extra": {"scope": ["all"]},
                "resourceAttributes": {
                    "verb": "force-migration", "group": "core.gardener.cloud", "resource": "shoots",
                    "namespace": "garden-p", "name": "s",
                },
            });
            assert_eq!(body["spec"], spec);
        }
        let (client, _) = scripted::client(|_| scripted::status(403, "forbidden"));
        assert!(may_force(&client, &needs(), &user).await.is_err());
        let (client, asked) = scripted::client(|_| scripted::status(500, "not to be asked"));
        assert!(!may_force(&client, &RequiredFacts::default(), &user).await.expect("no question"));
        assert!(asked.lock().is_empty());
    }

    #[tokio::test]
    async fn knows_the_bastions_of_one_shoot_and_none_where_there_are_none() {
        let (client, asked) = scripted::client(|_| {
            let bastion = |name: &str, shoot: &str| json!({"metadata": {"name": name}, "spec": {"shootRef": {"name": shoot}}});
            (200, json!({"metadata": {}, "items": [bastion("mine", "s"), bastion("other", "t")]}))
        });
        assert_eq!(bastions(&client, &needs()).await.expect("an answer"), ["mine"]);
        let path = asked.lock()[0].1.clone();
        assert!(
            path.starts_with("/apis/operations.gardener.cloud/v1alpha1/namespaces/garden-p/bastions"),
            "{path}"
        );
        let (client, _) =
            scripted::client(|_| scripted::status(404, "the server could not find the requested resource"));
        assert!(bastions(&client, &needs()).await.expect("an answer").is_empty());
        let (client, _) = scripted::client(|_| scripted::status(403, "forbidden"));
        assert!(bastions(&client, &needs()).await.is_err());
    }
}
