//! What security contexts ask for, and the program that becomes the container after it has given up everything else.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Capabilities, Container, PodSpec};
use serde_json::{Value, json};

/// Python, which is one of the tools of the tests: it needs nothing of the new root once it runs.
const PYTHON: &str = "/usr/bin/python3";

/// Changes root, user and rights in the order in which the kernel lets it, and becomes the program of the container.
///
/// The signal at the death of the parent is set again, since the kernel forgets it when the user changes. `warnings` is imported where
/// modules can be found: `os` imports it when it looks for a program in `PATH`.
const BECOME: &str = r#"
import ctypes, json, os, sys, warnings
asked = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
PDEATHSIG, CAPBSET_READ, CAPBSET_DROP, NO_NEW_PRIVS = 1, 23, 24, 38

def prctl(option, value):
    done = libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if done < 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} of {value}")

parent = os.getppid()
kept = asked["capabilities"]
number = 0
while kept is not None and libc.prctl(CAPBSET_READ, number, 0, 0, 0) >= 0:
    if number not in kept:
        prctl(CAPBSET_DROP, number)
    number += 1
if asked["root"]:
    os.chroot(asked["root"])
os.setgroups(asked["groups"])
os.setresgid(asked["group"], asked["group"], asked["group"])
os.setresuid(asked["user"], asked["user"], asked["user"])
os.chdir(asked["directory"])
prctl(PDEATHSIG, 9)
if os.getppid() != parent:
    sys.exit("the pod runner has ended")
if asked["no_new_privileges"]:
    prctl(NO_NEW_PRIVS, 1)
try:
    os.execvpe(asked["argv"][0], asked["argv"], asked["env"])
except OSError as error:
    sys.exit(f"failed to run {asked['argv'][0]}: {error}")
"#;

/// All capabilities in the order of their numbers (`linux/capability.h`).
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Who a container is, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Security {
    pub user: u32,
    pub group: u32,
    /// All supplementary groups, that of the volumes among them.
    pub groups: Vec<u32>,
    /// Whether only volumes can be written.
    pub read_only_root: bool,
    no_new_privileges: bool,
    /// Numbers of the capabilities that it may ever have; `None`: all of them.
    capabilities: Option<Vec<usize>>,
}

/// Who owns the files of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeOwner {
    /// `fsGroup` of the Pod.
    pub group: Option<u32>,
    /// The user of all containers, when they have the same: it owns tokens.
    pub user: Option<u32>,
    /// Whether a volume is left as it is when its root directory has the group already.
    pub on_root_mismatch: bool,
}

impl Security {
    /// What a Pod asks for one of its containers; the user of the image counts where it names none.
    ///
    /// Errors: as a kubelet refuses the container, or when a capability is unknown.
    pub(super) fn of(pod: &PodSpec, container: &Container, image: (u32, u32)) -> Result<Self> {
        let (all, own) =
            (pod.security_context.clone().unwrap_or_default(), container.security_context.clone());
        let own = own.unwrap_or_default();
        let user = id(own.run_as_user.or(all.run_as_user))?;
        let group = id(own.run_as_group.or(all.run_as_group))?;
        // A kubelet looks up the group of a user in the image; users of ours have the group of their own number or none.
        let group = group.unwrap_or(if user.is_none_or(|user| user == image.0) { image.1 } else { 0 });
        let user = user.unwrap_or(image.0);
        let non_root = own.run_as_non_root.or(all.run_as_non_root) == Some(true);
        ensure!(!non_root || user != 0, "container has runAsNonRoot and image will run as root");
        let mut groups = vec![group];
        for extra in all.supplemental_groups.iter().flatten().copied().chain(all.fs_group) {
            groups.extend(id(Some(extra))?);
        }
        groups.dedup();
        let capabilities = match own.privileged {
            Some(true) => None,
            _ => own.capabilities.as_ref().map(capabilities).transpose()?.flatten(),
        };
        let no_new_privileges = own.allow_privilege_escalation == Some(false);
        let read_only_root = own.read_only_root_filesystem == Some(true);
        Ok(Self { user, group, groups, read_only_root, no_new_privileges, capabilities })
    }

    /// Whether the container is what the machine's root user is anyway.
    pub(super) fn is_unlimited(&self) -> bool {
        let root = self.user == 0 && self.groups.iter().all(|group| *group == 0);
        root && !self.no_new_privileges && self.capabilities.is_none()
    }

    /// The command that becomes the one given, in `root` when there is one.
    pub(super) fn become_words(&self, root: Option<&str>, directory: &str, run: &Value) -> Vec<String> {
        let asked = json!({
            "root": root, "directory": directory, "argv": run["argv"], "env": run["env"], "user": self.user,
            "group": self.group, "groups": self.groups, "capabilities": self.capabilities,
            "no_new_privileges": self.no_new_privileges,
        });
        [PYTHON, "-I", "-S", "-c", BECOME, &asked.to_string()].map(str::to_owned).into()
    }
}

impl VolumeOwner {
    /// What a Pod asks for its volumes.
    ///
    /// Errors: when a number is none of a user or group.
    pub(super) fn of(pod: &PodSpec) -> Result<Self> {
        let all = pod.security_context.clone().unwrap_or_default();
        let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
        let mut users = containers
            .map(|one| one.security_context.as_ref().and_then(|own| own.run_as_user).or(all.run_as_user));
        let first = users.next().flatten();
        let user = first.filter(|first| *first != 0 && users.all(|other| other == Some(*first)));
        let on_root_mismatch = all.fs_group_change_policy.as_deref() == Some("OnRootMismatch");
        Ok(Self { group: id(all.fs_group)?, user: id(user)?, on_root_mismatch })
    }
}

fn id(number: Option<i64>) -> Result<Option<u32>> {
    number
        .map(|number| number.try_into().with_context(|| format!("{number} is no user or group")))
        .transpose()
}

/// The capabilities that stay; all, where only some are added.
fn capabilities(asked: &Capabilities) -> Result<Option<Vec<usize>>> {
    let dropped = asked.drop.as_deref().unwrap_or_default();
    if dropped.is_empty() {
        return Ok(None);
    }
    let mut kept: Vec<usize> = match dropped.iter().any(|name| name == "ALL") {
        true => Vec::new(),
        false => (0..CAPABILITIES.len()).collect(),
    };
    for name in dropped.iter().filter(|name| *name != "ALL") {
        let gone = number(name)?;
        kept.retain(|number| *number != gone);
    }
    for name in asked.add.iter().flatten() {
        kept.push(number(name)?);
    }
    Ok(Some(kept))
}

fn number(name: &str) -> Result<usize> {
    match CAPABILITIES.iter().position(|known| *known == name) {
        Some(number) => Ok(number),
        None => bail!("there is no capability {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn security(pod: Value, container: Value) -> Result<Security> {
        let mut spec =
            json!({"securityContext": pod, "containers": [{"name": "a", "securityContext": container}]});
        let spec: PodSpec = serde_json::from_value(spec.take()).expect("a spec");
        Security::of(&spec, &spec.containers[0], (0, 0))
    }

    #[test]
    fn container_comes_before_its_pod() {
        let pod = json!({"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "runAsNonRoot": true});
        let found = security(pod, json!({"runAsUser": 7, "readOnlyRootFilesystem": true})).expect("security");
        assert_eq!((found.user, found.group, found.groups), (7, 2, vec![2, 3]));
        assert!(found.read_only_root);
    }

    #[test]
    fn root_is_refused_where_a_pod_excludes_it() {
        let refused = security(json!({"runAsNonRoot": true}), json!({})).expect_err("root").to_string();
        assert_eq!(refused, "container has runAsNonRoot and image will run as root");
    }

    #[test]
    fn capabilities_are_dropped_and_added() {
        let kept = |drop: &[&str], add: &[&str]| {
            security(json!({}), json!({"capabilities": {"drop": drop, "add": add}}))
                .expect("security")
                .capabilities
        };
        assert_eq!(kept(&["ALL"], &["NET_ADMIN"]), Some(vec![12]));
        assert_eq!(kept(&["NET_RAW"], &[]).map(|kept| kept.len()), Some(40));
        assert_eq!(kept(&[], &["NET_ADMIN"]), None);
        security(json!({}), json!({"capabilities": {"drop": ["FLY"]}})).expect_err("no such capability");
    }

    #[test]
    fn nobody_owns_tokens_of_containers_with_different_users() {
        let owner = |second: i64| {
            let spec = json!({"containers": [
                {"name": "a", "securityContext": {"runAsUser": 5}}, {"name": "b", "securityContext": {"runAsUser": second}},
            ]});
            VolumeOwner::of(&serde_json::from_value(spec).expect("a spec")).expect("an owner").user
        };
        assert_eq!((owner(5), owner(6)), (Some(5), None));
    }
}
