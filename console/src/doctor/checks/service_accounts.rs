//! What the ServiceAccounts of Repot's Pods may do, of what their parts need.

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, api::PostParams};
use repot_apimachinery::value::text_at;
use serde_json::Value;

use super::{controllers::LEASE, registrations::API_SERVICE, rights::failed_review, webhooks::VALIDATING};
use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::{CONTROL_PLANE_MIGRATION, ETCD, ETCD_BACKUP, Error, HOSTED_ETCD, Kind, Result, SEED, SHOOT},
};

/// Name of the check.
pub(super) const NAME: &str = "serviceaccounts";

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// In all namespaces, or on a kind without namespaces.
    Cluster,
    /// In the namespace of the Pod.
    Own,
    /// In this namespace.
    In(&'static str),
}

/// What a part of Repot has to be allowed.
struct Need {
    verb: &'static str,
    kind: Kind,
    part: &'static str,
    name: &'static str,
    scope: Scope,
    /// The kind without which it is not needed here.
    only_with: Option<Kind>,
}

const fn need(verb: &'static str, kind: Kind, part: &'static str, only_with: Option<Kind>) -> Need {
    Need { verb, kind, part, name: "", scope: Scope::Cluster, only_with }
}

const fn named(verb: &'static str, kind: Kind, name: &'static str, scope: Scope) -> Need {
    Need { verb, kind, part: "", name, scope, only_with: None }
}

const SECRET: Kind = Kind::new("", "v1", "Secret", "secrets");
const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap", "configmaps");
const NAMESPACE: Kind = Kind::new("", "v1", "Namespace", "namespaces");
const STATEFUL_SET: Kind = Kind::new("apps", "v1", "StatefulSet", "statefulsets");
const JOB: Kind = Kind::new("batch", "v1", "Job", "jobs");
const TOKEN_REVIEW: Kind = Kind::new("authentication.k8s.io", "v1", "TokenReview", "tokenreviews");
const ACCESS_REVIEW: Kind =
    Kind::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews");

/// Components by the label of their Pods. Of each rule of a role one right stands for all.
const COMPONENTS: &[(&str, &[Need])] = &[
    (
        "repot-apiserver",
        &[
            need("create", TOKEN_REVIEW, "", None),
            need("create", ACCESS_REVIEW, "", None),
            need("list", NAMESPACE, "", None),
            need("list", VALIDATING, "", None),
            named("get", CONFIG_MAP, "extension-apiserver-authentication", Scope::In("kube-system")),
        ],
    ),
    (
        "repot-controllers",
        &[
            named("update", LEASE, "repot-controllers", Scope::Own),
            need("patch", HOSTED_ETCD, "status", Some(HOSTED_ETCD)),
            need("patch", ETCD_BACKUP, "status", Some(HOSTED_ETCD)),
            need("patch", ETCD, "status", Some(HOSTED_ETCD)),
            need("create", STATEFUL_SET, "", Some(HOSTED_ETCD)),
            need("create", JOB, "", Some(HOSTED_ETCD)),
            need("patch", CONTROL_PLANE_MIGRATION, "status", Some(CONTROL_PLANE_MIGRATION)),
            need("list", SHOOT, "", Some(CONTROL_PLANE_MIGRATION)),
        ],
    ),
    (
        "repot-webhook",
        &[
            need("list", SHOOT, "", Some(SHOOT)),
            need("list", SEED, "", Some(SEED)),
            need("list", HOSTED_ETCD, "", Some(HOSTED_ETCD)),
        ],
    ),
    (
        "repot-certs",
        &[
            named("update", LEASE, "repot-certs", Scope::Own),
            named("get", SECRET, "repot-authorities", Scope::Own),
            named("update", API_SERVICE, "v1alpha1.migration.gardener.cloud", Scope::Cluster),
        ],
    ),
];

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    let pods = match &survey.pods {
        Ok(pods) => pods,
        Err(why) => return Ok(vec![Finding::not_checked(NAME, "", why)]),
    };
    let mut findings = Vec::new();
    for (component, needs) in COMPONENTS {
        let mut accounts: Vec<(String, String)> = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/name"] == *component)
            .map(account)
            .collect();
        accounts.sort_unstable();
        accounts.dedup();
        for account in accounts {
            findings.push(judge(survey, &account, needs).await?);
        }
    }
    Ok(findings)
}

fn account(pod: &Value) -> (String, String) {
    let text = |path| text_at(pod, path).unwrap_or("default").to_owned();
    (text("/metadata/namespace"), text("/spec/serviceAccountName"))
}

async fn judge(survey: &Survey, account: &(String, String), needs: &[Need]) -> Result<Finding> {
    let needed = needs.iter().filter(|need| need.only_with.is_none_or(|kind| survey.serves(&kind)));
    // Of a virtual garden the objects are elsewhere, under the rights of a kubeconfig.
    let is_here = survey.serves(&HOSTED_ETCD) || survey.serves(&CONTROL_PLANE_MIGRATION);
    let subject = format!("ServiceAccount {}/{}", account.0, account.1);
    if !is_here {
        return Ok(Finding::not_checked(NAME, subject, "the kinds of Repot are served by another cluster"));
    }
    let asked = needed.map(async |need| Ok::<_, Error>((need, is_allowed(survey, account, need).await?)));
    let denied: Vec<String> =
        try_join_all(asked).await?.into_iter().filter(|(_, may)| !may).map(|(need, _)| words(need)).collect();
    if denied.is_empty() {
        return Ok(Finding::ok(NAME, subject, "has the rights that its part of Repot needs"));
    }
    let advice = "apply the roles of the chart again: helm upgrade, or kubectl apply -f deploy/rbac";
    Ok(Finding::problem(NAME, subject, format!("may not {}", denied.join(", ")), advice))
}

fn words(need: &Need) -> String {
    let part = if need.part.is_empty() { String::new() } else { format!("/{}", need.part) };
    let name = if need.name.is_empty() { String::new() } else { format!(" {}", need.name) };
    format!("{} {}{part}{name}", need.verb, need.kind.plural)
}

fn review((namespace, name): &(String, String), need: &Need) -> SubjectAccessReview {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let attributes = ResourceAttributes {
        group: Some(need.kind.group.to_owned()),
        resource: text(need.kind.plural),
        subresource: text(need.part),
        name: text(need.name),
        verb: text(need.verb),
        namespace: match need.scope {
            Scope::Cluster => None,
            Scope::Own => Some(namespace.clone()),
            Scope::In(namespace) => text(namespace),
        },
        ..ResourceAttributes::default()
    };
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let groups = groups.into_iter().chain(["system:authenticated".to_owned()]).collect();
    let spec = SubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        user: Some(format!("system:serviceaccount:{namespace}:{name}")),
        groups: Some(groups),
        ..SubjectAccessReviewSpec::default()
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

async fn is_allowed(survey: &Survey, account: &(String, String), need: &Need) -> Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(survey.objects.client().clone());
    let answer = reviews.create(&PostParams::default(), &review(account, need)).await;
    let answer = answer.map_err(|error| failed_review("SubjectAccessReview", &error))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn review_names_the_account_with_its_groups() {
        let account = ("repot-system".to_owned(), "repot-certs".to_owned());
        let spec = review(&account, &named("update", LEASE, "repot-certs", Scope::Own)).spec;
        assert_eq!(spec.user.as_deref(), Some("system:serviceaccount:repot-system:repot-certs"));
        assert!(
            spec.groups
                .is_some_and(|groups| groups.contains(&"system:serviceaccounts:repot-system".to_owned()))
        );
        let attributes = spec.resource_attributes.expect("attributes");
        assert_eq!(attributes.namespace.as_deref(), Some("repot-system"));
        assert_eq!((attributes.name.as_deref(), attributes.subresource), (Some("repot-certs"), None));
    }

    /// What is asked for here is granted by the roles of `deploy/rbac`.
    #[test]
    fn needs_are_granted_by_the_roles_that_are_shipped() {
        let roles = [
            include_str!("../../../../deploy/rbac/server.yaml"),
            include_str!("../../../../deploy/rbac/controllers.yaml"),
            include_str!("../../../../deploy/rbac/webhook.yaml"),
            include_str!("../../../../deploy/rbac/garden.yaml"),
            include_str!("../../../../deploy/rbac/garden-migrations.yaml"),
            include_str!("../../../../deploy/charts/repot-garden/templates/shared/rbac-certs.yaml"),
        ]
        .concat();
        // Roles of Kubernetes itself grant these.
        let builtin = ["tokenreviews", "subjectaccessreviews", "configmaps"];
        for need in COMPONENTS.iter().flat_map(|(_, needs)| needs.iter()) {
            let part = if need.part.is_empty() { String::new() } else { format!("/{}", need.part) };
            let resource = format!("{}{part}", need.kind.plural);
            let is_of = |line: &&str| {
                line.trim()
                    .strip_prefix("resources:")
                    .is_some_and(|list| list.split(['[', ']', ',', ' ']).any(|word| word == resource))
                    || line.contains("lower .kind") && need.kind == VALIDATING
            };
            let lines: Vec<&str> = roles.lines().collect();
            let is_granted = lines.iter().enumerate().filter(|(_, line)| is_of(line)).any(|(at, _)| {
                lines[at..]
                    .iter()
                    .take(8)
                    .find(|line| line.contains("verbs:"))
                    .is_some_and(|line| line.contains(need.verb))
            });
            assert!(is_granted || builtin.contains(&need.kind.plural), "{} {resource}", need.verb);
        }
    }
}
