//! Which directories a store with the provider `Local` may use.
//!
//! Such a store becomes a hostPath volume of Pods, and the workflow controllers open it in their own file system. The path comes
//! from an Etcd, a HostedEtcd or an EtcdRestore. Whoever may write one of these must not reach any directory of a node by it. So
//! Local stores are refused, unless the flag `--local-store-path` names the directory below which they lie.
//!
//! Symbolic links are out of scope: paths are compared, and no file system is asked. Let only trusted Pods write below the
//! directory.

use std::path::{Component, Path, PathBuf};

/// Why a Local store is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No directory is configured.
    #[error(
        "stores with provider Local are disabled; start repot controllers with --local-store-path, or use S3, GCS or ABS"
    )]
    Disabled,
    /// The container lies elsewhere.
    #[error("container {container:?} must be {} or an absolute path below it, without \"..\"", root.display())]
    OutsideRoot {
        /// The container of the store.
        container: String,
        /// The directory of the flag.
        root: PathBuf,
    },
    /// The prefix leads out of the container.
    #[error("prefix {0:?} must be a relative path without \"..\"")]
    BadPrefix(String),
    /// A store becomes a URL, and parsers of URLs read some characters as other ones.
    #[error("{0:?} must not contain %, ?, #, backslashes or control characters")]
    BadCharacter(String),
    /// The directory of the flag cannot be used.
    #[error("--local-store-path {} must be an absolute path other than /, without \"..\"", .0.display())]
    BadRoot(PathBuf),
}

/// The directory below which Local stores lie, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalStores(Option<PathBuf>);

impl LocalStores {
    /// Allows stores in this directory and below it; `None` allows none.
    ///
    /// # Errors
    /// [`Error::BadRoot`]; `/` would allow every path of a node.
    pub fn below(root: Option<PathBuf>) -> Result<Self, Error> {
        match root {
            Some(root) if !is_plain(&root) || root.parent().is_none() => Err(Error::BadRoot(root)),
            root => Ok(Self(root)),
        }
    }

    /// Checks the container, which is the directory that Pods mount, and the prefix, which is a path in it.
    ///
    /// # Errors
    /// All but [`Error::BadRoot`].
    pub fn check(&self, container: &str, prefix: &str) -> Result<(), Error> {
        let root = self.0.as_ref().ok_or(Error::Disabled)?;
        if let Some(text) = [container, prefix].into_iter().find(|text| text.contains(is_ambiguous)) {
            return Err(Error::BadCharacter(text.to_owned()));
        }
        let directory = Path::new(container);
        if !is_plain(directory) || !directory.starts_with(root) {
            return Err(Error::OutsideRoot { container: container.to_owned(), root: root.clone() });
        }
        let is_below = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
        match Path::new(prefix).components().all(is_below) {
            true => Ok(()),
            false => Err(Error::BadPrefix(prefix.to_owned())),
        }
    }
}

/// Whether a path is absolute and never leads upwards.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}

/// `%2e%2e` and `..\` are `..` in a file URL, and tabs are dropped from it.
fn is_ambiguous(c: char) -> bool {
    matches!(c, '%' | '?' | '#' | '\\') || c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(root: &str) -> LocalStores {
        LocalStores::below(Some(root.into())).expect("a directory")
    }

    #[test]
    fn refuses_every_store_without_a_directory() {
        let none = LocalStores::below(None).expect("none");
        assert_eq!(none.check("/backups", "a"), Err(Error::Disabled));
        assert_eq!(LocalStores::default(), none);
    }

    #[test]
    fn refuses_directories_that_allow_everything() {
        for root in ["/", "relative", "/a/../b", "//", "/.", ""] {
            assert!(LocalStores::below(Some(root.into())).is_err(), "{root}");
        }
    }

    #[test]
    fn allows_only_what_lies_below_the_directory() {
        let allowed = mk("/var/backups/");
        for (container, prefix) in
            [("/var/backups", "a/b"), ("/var/backups/x/", "a"), ("/var//backups/./x", "a..b/..c")]
        {
            assert_eq!(allowed.check(container, prefix), Ok(()), "{container} {prefix}");
        }
        for container in ["/", "/etc", "/var", "/var/backups-2", "/var/backups/../etc", "var/backups", ""] {
            let refused = allowed.check(container, "a");
            assert!(matches!(refused, Err(Error::OutsideRoot { .. })), "{container}: {refused:?}");
        }
    }

    #[test]
    fn refuses_prefixes_that_leave_the_container() {
        for prefix in ["..", "a/../../b", "/etc", "a/.."] {
            let refused = mk("/b").check("/b", prefix);
            assert_eq!(refused, Err(Error::BadPrefix(prefix.to_owned())));
        }
        for prefix in ["%2e%2e/a", "..\\a", ".\t./a", "a?b", "a#b"] {
            let refused = mk("/b").check("/b", prefix);
            assert_eq!(refused, Err(Error::BadCharacter(prefix.to_owned())));
        }
        assert!(mk("/b").check("/b/%2e%2e/etc", "a").is_err());
    }
}
