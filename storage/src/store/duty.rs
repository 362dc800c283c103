//! Which server collects. Every server could, at any time: what is removed is garbage for all of them. One is enough.
//!
//! The server that collects holds a key which vanishes with it. Every removal compares that key, so one that was paused and lost
//! it stops at once. Nothing else depends on it: two servers that both collect do the same work twice, and no harm.

use bytes::Bytes;
use tokio::sync::Mutex;

use super::{core::Core, path};
use crate::{
    Error, Result,
    backend::{Compare, KeyValue, Op, Outcome, Revision, Txn},
    seal,
};

/// The part of a server in the election.
#[derive(Debug, Default)]
pub(super) struct Candidate {
    /// What it writes into the key, so that it knows its own after an answer that was lost.
    name: Mutex<Option<Bytes>>,
}

impl Candidate {
    /// Holds as long as this server is the one that collects; `None`: another one is.
    pub(super) async fn hold(&self, core: &Core) -> Result<Option<Compare>> {
        let mut own = self.name.lock().await;
        let name = match &*own {
            Some(name) => name.clone(),
            None => {
                let name: [u8; 16] = seal::random().map_err(|_| Error::cipher_refused())?;
                own.insert(Bytes::copy_from_slice(&name)).clone()
            }
        };
        if let Some(holder) = holder(core).await? {
            return Ok((holder.value == name).then(|| fence(holder.modified)));
        }
        let ops = vec![Op::PutEphemeral(path::COLLECTOR.into(), name.clone())];
        match core.backend.txn(Txn { compares: vec![fence(Revision(0))], ops }).await {
            Ok(Outcome::Committed(made)) => Ok(Some(fence(core.met(made)))),
            Ok(Outcome::Failed) => Ok(None),
            Err(error) => match core.error(error) {
                // Perhaps it holds it; the next look tells.
                Error::UnknownOutcome(_) => Ok(None),
                error => Err(error),
            },
        }
    }
}

async fn holder(core: &Core) -> Result<Option<KeyValue>> {
    core.backend.get(path::COLLECTOR.into(), None).await.map_err(|error| core.error(error))
}

fn fence(made: Revision) -> Compare {
    Compare::ModifiedAt(path::COLLECTOR.into(), made)
}
