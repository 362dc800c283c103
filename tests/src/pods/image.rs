//! Images: names that stand for programs of this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// What a container of an image finds: programs of the machine in `/usr/local/bin`, and what runs when it names no command.
#[derive(Clone, Debug)]
pub struct Image {
    pub(super) programs: Vec<PathBuf>,
    pub(super) entrypoint: Vec<String>,
}

impl Image {
    /// An image of one program, which is its entrypoint.
    pub fn of(program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        Self { entrypoint: vec![program.display().to_string()], programs: vec![program] }
    }

    /// With a further program.
    #[must_use]
    pub fn and(mut self, program: impl Into<PathBuf>) -> Self {
        self.programs.push(program.into());
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
