//! The object that a write is about: looked at before there is room for the write, since that depends on how large it is.

use repot_storage::{Object, Result};

use super::Request;
use crate::status::Status;

/// The object of a write as it rested before there was room for the write. The first try begins with it.
pub(super) struct Found(Option<Result<Option<Object>>>);

impl Found {
    /// Looks. What goes wrong is told by [`Found::take`].
    pub(super) async fn look(request: &Request<'_>) -> Self {
        Self(Some(request.server.store.get(&request.key()).await))
    }

    /// Length of its payload; zero where there is none.
    pub(super) fn payload_len(&self) -> u64 {
        let found = self.0.as_ref().and_then(|found| found.as_ref().ok()?.as_ref());
        found.map_or(0, |object| object.payload_len)
    }

    /// The object; from the second time on as it is then.
    pub(super) async fn take(&mut self, request: &Request<'_>) -> Result<Option<Object>, Status> {
        let found = match self.0.take() {
            Some(found) => found,
            None => request.server.store.get(&request.key()).await,
        };
        found.map_err(|error| request.failed(&error))
    }
}
