//! What the user may do: the rights that each command needs.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use repot_api::names::CORE_GROUP;

use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::{
        CONTROL_PLANE_MIGRATION, ETCD, ETCD_BACKUP, ETCD_MIGRATION, ETCD_RESTORE, Error, HOSTED_ETCD, Kind,
        Result, SEED, SHOOT, message,
    },
};

/// Name of the check.
pub(super) const NAME: &str = "rights";
/// A verb on a resource, and perhaps on a part of it.
type Right = (&'static str, Kind, &'static str);

const POD: Kind = Kind::new("", "v1", "Pod", "pods");
const EVENT: Kind = Kind::new("", "v1", "Event", "events");
const DNS_RECORD: Kind = Kind::new("extensions.gardener.cloud", "v1alpha1", "DNSRecord", "dnsrecords");

const CLOUD_PROFILE: Kind = Kind::new(CORE_GROUP, "v1beta1", "CloudProfile", "cloudprofiles");
const PROJECT: Kind = Kind::new(CORE_GROUP, "v1beta1", "Project", "projects");
const READ_SHOOT: Right = ("get", SHOOT, "");
const READ_MIGRATIONS: Right = ("list", CONTROL_PLANE_MIGRATION, "");
const MIGRATE: Right = ("create", CONTROL_PLANE_MIGRATION, "");
/// What the rules of the webhooks are asked with.
const RULES: [Right; 4] =
    [("list", SHOOT, ""), ("list", SEED, ""), ("list", CLOUD_PROFILE, ""), ("list", PROJECT, "")];

/// Commands, each with the kind without which it is not for this cluster, and the rights that it needs.
const COMMANDS: &[(&str, Kind, &[Right])] = &[
    (
        "status, timeline, history",
        CONTROL_PLANE_MIGRATION,
        &[("get", CONTROL_PLANE_MIGRATION, ""), ("list", CONTROL_PLANE_MIGRATION, "")],
    ),
    ("plan, preflight", SHOOT, &[READ_SHOOT, RULES[0], RULES[1], RULES[2], RULES[3], READ_MIGRATIONS]),
    (
        "migrate",
        CONTROL_PLANE_MIGRATION,
        &[READ_SHOOT, RULES[0], RULES[1], RULES[2], RULES[3], READ_MIGRATIONS, MIGRATE],
    ),
    ("migrate --ignore-rules", CONTROL_PLANE_MIGRATION, &[READ_SHOOT, READ_MIGRATIONS, MIGRATE]),
    ("drain", CONTROL_PLANE_MIGRATION, &[RULES[0], RULES[1], RULES[2], RULES[3], READ_MIGRATIONS, MIGRATE]),
    (
        "abort, pause, resume, retry, force-shrink, confirm",
        CONTROL_PLANE_MIGRATION,
        &[("patch", CONTROL_PLANE_MIGRATION, "")],
    ),
    ("isolate, failback", SHOOT, &[("list", SHOOT, ""), ("patch", SHOOT, "")]),
    (
        "etcd list, etcd status",
        HOSTED_ETCD,
        &[
            ("list", HOSTED_ETCD, ""),
            ("list", ETCD_BACKUP, ""),
            ("list", ETCD_RESTORE, ""),
            ("list", ETCD_MIGRATION, ""),
            ("get", ETCD, ""),
        ],
    ),
    ("etcd backup", HOSTED_ETCD, &[("create", ETCD_BACKUP, "")]),
    ("etcd restore", HOSTED_ETCD, &[("create", ETCD_RESTORE, "")]),
    ("etcd migrate", HOSTED_ETCD, &[("create", ETCD_MIGRATION, "")]),
    ("owner show, owner check", DNS_RECORD, &[("get", ETCD, ""), ("list", DNS_RECORD, "")]),
    ("owner transfer", DNS_RECORD, &[("patch", DNS_RECORD, "")]),
    ("doctor --bundle", POD, &[("list", POD, ""), ("get", POD, "log"), ("list", EVENT, "")]),
];

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    let is_here = |kind: &Kind| kind.group.is_empty() || survey.serves(kind);
    let commands: Vec<_> = COMMANDS.iter().filter(|(_, kind, _)| is_here(kind)).collect();
    let mut rights: Vec<Right> = Vec::new();
    for right in commands.iter().flat_map(|(_, _, needed)| needed.iter()) {
        if !rights.contains(right) {
            rights.push(*right);
        }
    }
    let asked = try_join_all(
        rights.iter().map(async |right| Ok::<_, Error>((name(right), ask(survey, right).await?))),
    )
    .await?;
    let allowed: BTreeMap<String, bool> = asked.into_iter().collect();
    Ok(commands
        .iter()
        .map(|(command, _, needed)| judge(command, needed, &allowed, survey.namespace.as_deref()))
        .collect())
}

/// As people write it: `get pods/log`.
fn name((verb, kind, part): &Right) -> String {
    let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
    let part = if part.is_empty() { String::new() } else { format!("/{part}") };
    format!("{verb} {}{group}{part}", kind.plural)
}

fn judge(
    command: &str,
    needed: &[Right],
    allowed: &BTreeMap<String, bool>,
    namespace: Option<&str>,
) -> Finding {
    let place =
        namespace.map_or_else(|| "in all namespaces".to_owned(), |name| format!("in namespace {name}"));
    let subject = format!("repot {command}");
    let missing: Vec<String> =
        needed.iter().map(name).filter(|right| allowed.get(right) != Some(&true)).collect();
    if missing.is_empty() {
        return Finding::ok(NAME, subject, format!("you have the rights for it {place}"));
    }
    let says = format!("you may not {} {place}", missing.join(", "));
    let advice = "bind the role repot-migration-operator or repot-etcd-operator to yourself; --namespace asks for one namespace";
    Finding::warning(NAME, subject, says, advice)
}

async fn ask(survey: &Survey, (verb, kind, part): &Right) -> Result<bool> {
    let attributes = ResourceAttributes {
        group: Some(kind.group.to_owned()),
        resource: Some(kind.plural.to_owned()),
        subresource: Some((*part).to_owned()).filter(|part| !part.is_empty()),
        verb: Some((*verb).to_owned()),
        namespace: survey.namespace.clone(),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(survey.objects.client().clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| failed_review("SelfSubjectAccessReview", &error))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Why an access review could not be had.
pub(super) fn failed_review(kind: &str, error: &kube::Error) -> Error {
    let what = format!("failed to create {kind}");
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            Error::Forbidden { what, message: status.message.clone() }
        }
        error => Error::Request { what, message: message(error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn command_needs_all_of_its_rights() {
        let needed: &[Right] = &[("list", HOSTED_ETCD, ""), ("get", POD, "log")];
        let of = |log| {
            let allowed = [("list hostedetcds.migration.gardener.cloud", true), ("get pods/log", log)];
            judge("x", needed, &allowed.map(|(name, may)| (name.to_owned(), may)).into(), Some("dev"))
        };
        assert_eq!(of(true).severity, Severity::Ok);
        assert_eq!(of(false).severity, Severity::Warning);
        assert_eq!(of(false).message, "you may not get pods/log in namespace dev");
    }
}
