//! Images: names that stand for programs of this machine, or for a root directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use super::root::BIN;

/// What a container of an image finds.
///
/// It is either the root of the machine, with programs in `/usr/local/bin`, or a root directory of its own and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub(super) programs: Vec<PathBuf>,
    pub(super) entrypoint: Vec<String>,
    /// Without one, the root of the machine.
    pub(super) root: Option<PathBuf>,
    /// Files of the machine that are seen at places of their own in a root directory.
    pub(super) files: Vec<(PathBuf, PathBuf)>,
    /// User and group, unless the Pod names others.
    pub(super) user: (u32, u32),
    pub(super) env: BTreeMap<String, String>,
}

/// What the configuration of an image says about its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// The command of containers that name none.
    pub entrypoint: Vec<String>,
    /// User and group of containers that name none.
    pub user: (u32, u32),
    /// Environment that containers add to.
    pub env: BTreeMap<String, String>,
}

impl Image {
    /// An image of one program, which is its entrypoint, over the root of the machine.
    pub fn of(program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        Self { entrypoint: vec![program.display().to_string()], programs: vec![program], ..Self::default() }
    }

    /// An image of a root directory, which containers see and do not change.
    pub fn of_root(root: impl Into<PathBuf>, config: ImageConfig) -> Self {
        let ImageConfig { entrypoint, user, env } = config;
        Self { entrypoint, user, env, root: Some(root.into()), ..Self::default() }
    }

    /// The command of a container that names none. Only root is sure to get at the program at its place on the machine.
    pub(super) fn entrypoint_of(&self, user: u32) -> Vec<String> {
        match self.programs.first().and_then(|program| program.file_name()) {
            Some(name) if user != 0 => vec![Path::new(BIN).join(name).display().to_string()],
            _ => self.entrypoint.clone(),
        }
    }

    /// With a further program.
    #[must_use]
    pub fn and(mut self, program: impl Into<PathBuf>) -> Self {
        self.programs.push(program.into());
        self
    }

    /// With a file of the machine, which is not copied, at a place in the root directory of the image.
    #[must_use]
    pub fn with_file(mut self, source: impl Into<PathBuf>, place: impl Into<PathBuf>) -> Self {
        self.files.push((source.into(), place.into()));
        self
    }
}

/// All images of a pod runner, by the name that Pods give. Clones share them; they may be added to at any time.
#[derive(Clone, Debug, Default)]
pub struct Images(Arc<RwLock<BTreeMap<String, Image>>>);

impl Images {
    /// With an image under a name.
    #[must_use]
    pub fn with(self, name: &str, image: Image) -> Self {
        self.add(name, image);
        self
    }

    /// Adds an image or puts another one in its place, for containers that start from now on.
    pub fn add(&self, name: &str, image: Image) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), image);
    }

    /// Whether there is an image of this name.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub(super) fn find(&self, name: &str) -> Option<Image> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}
