//! Which requests are recorded and how much of them: a `Policy` of `audit.k8s.io/v1`.

use serde::{Deserialize, Serialize};

use crate::filters::{request_info::RequestInfo, user::User};

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Nothing.
    None,
    /// Who did what when, and how it ended.
    Metadata,
    /// The object that was sent, too.
    Request,
    /// The object that was answered, too.
    RequestResponse,
}

impl Level {
    /// As written in events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// A moment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It came.
    RequestReceived,
    /// The head of the answer to a watch is sent.
    ResponseStarted,
    /// The answer is sent.
    ResponseComplete,
    /// The server failed.
    Panic,
}

/// A policy; the first rule that matches decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    api_version: String,
    kind: String,
    /// Name and the like; without meaning.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, and of no use here")]
    metadata: serde::de::IgnoredAny,
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no such document.
    #[error("not a Policy of audit.k8s.io/v1")]
    Parse(#[from] serde_saphyr::Error),
    /// It says something that makes no sense.
    #[error("invalid audit policy: {0}")]
    Invalid(String),
}

/// What a policy says about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Audit level: how much of the request is recorded.
    pub level: Level,
    /// Moments that are left out.
    pub omit_stages: Vec<Stage>,
    /// Whether managed fields are left out of objects.
    pub omit_managed_fields: bool,
}

impl Default for Policy {
    /// Metadata of everything, once: objects of this API carry payload that has no place in a log.
    fn default() -> Self {
        let rule = Rule {
            level: Level::Metadata,
            users: Vec::new(),
            user_groups: Vec::new(),
            verbs: Vec::new(),
            resources: Vec::new(),
            namespaces: Vec::new(),
            non_resource_urls: Vec::new(),
            omit_stages: vec![Stage::RequestReceived],
            omit_managed_fields: None,
        };
        Self {
            api_version: API_VERSION.into(),
            kind: "Policy".into(),
            metadata: serde::de::IgnoredAny,
            rules: vec![rule],
            omit_stages: Vec::new(),
            omit_managed_fields: false,
        }
    }
}

impl Policy {
    /// The default where a request fails when its arrival cannot be recorded: with an event for that.
    #[must_use]
    pub fn default_with_arrival() -> Self {
        let mut policy = Self::default();
        policy.rules.iter_mut().for_each(|rule| rule.omit_stages.clear());
        policy
    }
}

/// Version of policies and events.
pub const API_VERSION: &str = "audit.k8s.io/v1";

impl Policy {
    /// Reads a policy. Strictly: a misspelt field would record too little, or too much.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let policy: Self = serde_saphyr::from_str(text)?;
        let invalid = |why: String| Err(Error::Invalid(why));
        if policy.api_version != API_VERSION || policy.kind != "Policy" {
            return invalid(format!("it is a {} of {}", policy.kind, policy.api_version));
        }
        if policy.rules.is_empty() {
            return invalid("it has no rules".into());
        }
        for (at, rule) in policy.rules.iter().enumerate() {
            if let Err(why) = rule.check() {
                return invalid(format!("rules[{at}]: {why}"));
            }
        }
        Ok(policy)
    }

    /// What is recorded of a request.
    #[must_use]
    pub fn decide(&self, user: &User, info: &RequestInfo) -> Decision {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, info)) else {
            let omit_managed_fields = self.omit_managed_fields;
            return Decision { level: Level::None, omit_stages: Vec::new(), omit_managed_fields };
        };
        Decision {
            level: rule.level,
            omit_stages: [&rule.omit_stages[..], &self.omit_stages[..]].concat(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

fn listed(list: &[String], value: &str) -> bool {
    list.iter().any(|entry| entry == value)
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if of_resources && !self.non_resource_urls.is_empty() {
            return Err("a rule is either of resources or of nonResourceURLs".into());
        }
        for url in &self.non_resource_urls {
            let inner = url.strip_suffix('*').unwrap_or(url);
            if url != "*" && (!url.starts_with('/') || inner.contains('*')) {
                return Err(format!("{url:?} must begin with / and may have one * at its end"));
            }
        }
        let nameless = |r: &&GroupResources| !r.resource_names.is_empty() && r.resources.is_empty();
        match self.resources.iter().find(nameless) {
            Some(_) => Err("resourceNames need resources".into()),
            None => Ok(()),
        }
    }

    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        let any = |list: &[String], value: &str| list.is_empty() || listed(list, value);
        let groups = &self.user_groups;
        let verb = self.verbs.is_empty() || listed(&self.verbs, "*") || listed(&self.verbs, info.verb);
        if !any(&self.users, &user.name)
            || !(groups.is_empty() || user.groups.iter().any(|group| listed(groups, group)))
            || !verb
        {
            return false;
        }
        match &info.target {
            Some(target) => {
                let place = any(&self.namespaces, &target.namespace);
                let resource = self.resources.is_empty() || self.resources.iter().any(|r| r.matches(target));
                self.non_resource_urls.is_empty() && place && resource
            }
            None => {
                let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
                let path = |pattern: &String| path_matches(pattern, &info.path);
                let urls = &self.non_resource_urls;
                !of_resources && (urls.is_empty() || urls.iter().any(path))
            }
        }
    }
}

/// Whether a path is the one of a pattern, or begins with it where the pattern ends in `*`.
#[must_use]
pub fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == pattern,
    }
}

impl GroupResources {
    fn matches(&self, target: &crate::filters::request_info::Target) -> bool {
        let crate::filters::request_info::Target { group, resource, subresource, name, .. } = target;
        if self.group != "*" && self.group != *group {
            return false;
        }
        let named = self.resource_names.is_empty() || listed(&self.resource_names, name);
        let one = |pattern: &String| match pattern.split_once('/') {
            None => pattern == "*" || (subresource.is_empty() && pattern == resource),
            Some((r, s)) => {
                (r == "*" || r == resource) && (s == "*" || s == subresource) && {
                    // `r/*` is the resource and all below it; `*/s` wants a subresource.
                    s == "*" || !subresource.is_empty()
                }
            }
        };
        self.resources.is_empty() || (named && self.resources.iter().any(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:kube-controller-manager"]
  verbs: [watch]
- level: None
  nonResourceURLs: ["/healthz*", "/version"]
- level: Request
  resources:
  - group: g
    resources: [rs]
    resourceNames: [special]
  omitManagedFields: true
- level: RequestResponse
  userGroups: [auditors]
  namespaces: [kube-system]
  resources:
  - group: g
    resources: ["rs/*", "*/status"]
- level: Metadata
  resources:
  - group: g
  omitStages: [Panic]
"#;

    fn decide(user: &str, groups: &[&str], method: Method, path: &str) -> Decision {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let user = User { name: user.into(), groups, ..User::default() };
        let info = RequestInfo::parse(&method, &path.parse().expect("a URI"), path.contains("watch="));
        Policy::parse(POLICY).expect("a policy").decide(&user, &info)
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let (kcm, get) = ("system:kube-controller-manager", Method::GET);
        for (user, groups, path, level) in [
            (kcm, &[][..], "/apis/g/v1/rs?watch=1", Level::None),
            (kcm, &[], "/apis/g/v1/rs", Level::Metadata),
            ("a", &[], "/apis/g/v1/rs?watch=1", Level::Metadata),
            ("a", &[], "/healthz/ping", Level::None),
            ("a", &[], "/version", Level::None),
            ("a", &[], "/version/more", Level::None),
            ("a", &[], "/apis/g/v1/namespaces/n/rs/special", Level::Request),
            ("a", &[], "/apis/g/v1/namespaces/n/rs/special/status", Level::Metadata),
            ("a", &["auditors"], "/apis/g/v1/namespaces/kube-system/rs/x", Level::RequestResponse),
            ("a", &["auditors"], "/apis/g/v1/namespaces/kube-system/rs/x/status", Level::RequestResponse),
            ("a", &["auditors"], "/apis/g/v1/namespaces/kube-system/os/x/status", Level::RequestResponse),
            ("a", &["auditors"], "/apis/g/v1/namespaces/kube-system/os/x", Level::Metadata),
            ("a", &["auditors"], "/apis/g/v1/namespaces/default/rs/x", Level::Metadata),
            ("a", &[], "/apis/other/v1/rs", Level::None),
        ] {
            assert_eq!(decide(user, groups, get.clone(), path).level, level, "{user} {path}");
        }
        let special = decide("a", &[], Method::PUT, "/apis/g/v1/namespaces/n/rs/special");
        assert!(special.omit_managed_fields && special.omit_stages == [Stage::RequestReceived]);
        let other = decide("a", &[], Method::PUT, "/apis/g/v1/namespaces/n/rs/x");
        assert!(!other.omit_managed_fields);
        assert_eq!(other.omit_stages, [Stage::Panic, Stage::RequestReceived]);
    }

    #[test]
    fn nonsense_is_refused() {
        let with = |rule: &str| format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rule}");
        for text in [
            "kind: Policy".to_owned(),
            POLICY.replace("audit.k8s.io/v1", "audit.k8s.io/v1beta1"),
            POLICY.replace("omitStages", "omitStagse"),
            with("[]"),
            with("[{level: Everything}]"),
            with("[{level: None, nonResourceURLs: [/a], resources: [{group: g}]}]"),
            with("[{level: None, nonResourceURLs: ['/a*b']}]"),
            with("[{level: None, resources: [{group: g, resourceNames: [x]}]}]"),
        ] {
            assert!(Policy::parse(&text).is_err(), "{text}");
        }
        assert!(Policy::parse(&with("[{level: None}]")).is_ok());
    }
}
