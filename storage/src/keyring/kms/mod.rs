//! A provider that asks a key management service, by version 2 of Kubernetes' protocol.
//!
//! The service is asked rarely. One random seed is encrypted by it when this provider starts and when the service changes its
//! key; from that seed a key is derived for each data key that is wrapped (HKDF over 32 random bytes that rest beside it), used
//! once. So a thousand writes cost no call, and reading back whatever one process wrote in its life costs one; kube-apiserver
//! does the same, in the same bytes. A call for each object would make each LIST a storm on the service.
//!
//! - The service is asked for its status every 60 seconds, every 10 while it fails. Another id of its key means a new seed.
//! - A seed is used for three minutes after the last good status, so that whoever waits that long after changing the key knows
//!   that nothing is written under the old one. Reads go on: decrypted seeds are kept for a day after their last use.
//! - A new seed is decrypted again before anything is sealed with it: what a service cannot decrypt would be lost at the next start.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use aws_lc_rs::constant_time;
use bytes::Bytes;
use moka::future::Cache;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::{
    object::{Digest, Seed, Source},
    service::{Service, Socket, StatusResponse},
};
use super::{Error, Tried, metrics::Metrics};
use crate::{seal::DataKey, trace};

mod object;
mod service;

/// Seconds between questions for the status of a service that is well.
const POLL_WELL: u32 = 60;
/// Seconds between questions for the status of a service that fails.
const POLL_FAILING: u32 = 10;
/// Seconds for which a seed is used for writing after the last good status.
const WRITE_GRACE: u32 = 180;
/// Seconds after a failure in which the same is not asked again: a list of ten thousand objects must not wait ten thousand times.
const REFUSED_FOR: u32 = 3;
/// Seconds for which a seed is kept after it was last used: a day.
const KEPT_FOR: u32 = 86_400;
/// Seeds that are kept: one for each start of each server and each key, until all they sealed is written again.
const MOST_SEEDS: u64 = 10_000;

/// A provider of kind `kms`.
pub(super) struct Kms {
    name: String,
    prefix: Vec<u8>,
    service: Box<dyn Service>,
    /// What is called a second here; shorter in tests.
    second: Duration,
    writing: ArcSwapOption<Writing>,
    seeds: Cache<Digest, Arc<DecryptedSeed>>,
    refused: Mutex<HashMap<Digest, (Instant, Error)>>,
    /// The version of the protocol that the service spoke first. Held while it is asked: one question at a time.
    version: tokio::sync::Mutex<Option<String>>,
    /// Why the service is not well; `None`: it is.
    failing: RwLock<Option<String>>,
    metrics: Arc<Metrics>,
}

/// What wraps now.
pub(super) struct Writing {
    source: Source,
    known: Arc<DecryptedSeed>,
    until: Instant,
}

/// A seed that was decrypted, or made here.
struct DecryptedSeed {
    seed: Seed,
    key_id_hash: String,
}

impl Kms {
    /// The service at a unix socket; see [`Socket::new`].
    pub(super) fn new(
        name: &str,
        socket: PathBuf,
        timeout: Duration,
        second: Duration,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let service = Socket::new(name.into(), socket, timeout, Arc::clone(metrics));
        Self::with_service(name, Box::new(service), second, metrics)
    }

    fn with_service(name: &str, service: Box<dyn Service>, second: Duration, metrics: &Arc<Metrics>) -> Self {
        Self {
            name: name.into(),
            prefix: format!("k8s:enc:kms:v2:{name}:").into_bytes(),
            service,
            second,
            writing: ArcSwapOption::empty(),
            seeds: Cache::builder().max_capacity(MOST_SEEDS).time_to_idle(second * KEPT_FOR).build(),
            refused: Mutex::default(),
            version: tokio::sync::Mutex::default(),
            failing: RwLock::new(Some("it was not asked yet".into())),
            metrics: Arc::clone(metrics),
        }
    }

    /// Why the service is not well, as of when it was last asked.
    pub(super) fn failing(&self) -> Option<String> {
        self.failing.read().as_ref().map(|why| format!("kms provider {}: {why}", self.name))
    }

    /// Asks for the status again and again, until `stop`.
    pub(super) async fn poll(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let pause = tokio::time::sleep(self.pause());
            if stop.run_until_cancelled(pause).await.is_none()
                || stop.run_until_cancelled(self.probe()).await.is_none()
            {
                return;
            }
        }
    }

    /// Until the next question.
    fn pause(&self) -> Duration {
        self.second * if self.failing.read().is_none() { POLL_WELL } else { POLL_FAILING }
    }

    /// Asks for the status, and follows the service to another key.
    pub(super) async fn probe(&self) {
        let mut version = self.version.lock().await;
        let result = self.look(&mut version).instrument(trace::kms_probe(&self.name)).await;
        if let Err(why) = &result {
            tracing::warn!(provider = self.name, why, "key management service is not well");
        }
        *self.failing.write() = result.err();
    }

    async fn look(&self, version: &mut Option<String>) -> Result<(), String> {
        // Counted from before the question: three minutes are the most, however long the answer takes.
        let until = Instant::now() + self.second * WRITE_GRACE;
        let status = self.service.status().await.map_err(|failure| failure.to_string())?;
        if let Err(why) = object::check_key_id(&status.key_id) {
            let label = if status.key_id.is_empty() { "empty" } else { "too_long" };
            self.metrics.bad_key_id(&self.name, label);
            return Err(format!("Status: {why}"));
        }
        self.metrics.key_id_told(&self.name, &object::hash(&status.key_id));
        check_status(&status, version.as_deref())?;
        *version = Some(status.version);
        let next = match &*self.writing.load() {
            Some(now) if now.source.key_id == status.key_id => {
                Writing { source: now.source.clone(), known: Arc::clone(&now.known), until }
            }
            _ => self.start_writing(&status.key_id, until).await?,
        };
        self.writing.store(Some(Arc::new(next)));
        Ok(())
    }

    /// A new seed under the key of this id.
    async fn start_writing(&self, key_id: &str, until: Instant) -> Result<Writing, String> {
        let seed = Seed::random().ok_or("no random numbers")?;
        let source = self.service.encrypt(seed.bytes()).await.map_err(|failure| failure.to_string())?;
        source.check().map_err(|why| format!("Encrypt: {why}"))?;
        if source.key_id != key_id {
            return Err("Encrypt used another key than Status tells".into());
        }
        let back = self.service.decrypt(&source).await.map_err(|failure| failure.to_string())?;
        if constant_time::verify_slices_are_equal(&back, seed.bytes()).is_err() {
            return Err("Decrypt does not give back what was encrypted".into());
        }
        let known = Arc::new(DecryptedSeed { seed, key_id_hash: object::hash(key_id) });
        self.seeds.insert(source.digest(), Arc::clone(&known)).await;
        self.count_seeds();
        tracing::info!(provider = self.name, key_id_hash = known.key_id_hash, "writing with a new seed");
        Ok(Writing { source, known, until })
    }

    fn count_seeds(&self) {
        self.metrics.seeds(&self.name, self.seeds.entry_count());
    }

    /// What wraps now.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the service was not well for so long that its key may be another by now.
    pub(super) fn writing(&self) -> Result<Arc<Writing>, Error> {
        let unavailable = |why: String| Error::Unavailable { provider: self.name.clone(), why };
        let why = || self.failing.read().clone().unwrap_or_default();
        match self.writing.load_full() {
            None => Err(unavailable(format!("nothing was encrypted yet: {}", why()))),
            Some(writing) if writing.until < Instant::now() => {
                Err(unavailable(format!("its last good status is too long ago: {}", why())))
            }
            Some(writing) => Ok(writing),
        }
    }

    /// Wraps a data key; asks nobody.
    pub(super) fn wrap(&self, path: &[u8], key: &DataKey) -> Result<Bytes, Error> {
        let writing = self.writing()?;
        let sealed = writing.known.seed.seal(path, key).ok_or(Error::Cipher)?;
        self.metrics.used("to_storage", &self.name, &writing.known.key_id_hash);
        Ok([self.prefix.as_slice(), &writing.source.encode(sealed)].concat().into())
    }

    /// Unwraps a data key; asks the service only for a seed that it was not asked for before.
    pub(super) async fn unwrap(&self, path: &[u8], wrapped: &[u8]) -> Result<Tried, Error> {
        let Some(object) = wrapped.strip_prefix(self.prefix.as_slice()) else { return Ok(Tried::NotMine) };
        let Some((source, sealed)) = Source::decode(object) else { return Ok(Tried::Refused) };
        let known = self.known(source).await?;
        self.metrics.used("from_storage", &self.name, &known.key_id_hash);
        Ok(known.seed.open(path, &sealed).map_or(Tried::Refused, Tried::Opened))
    }

    async fn known(&self, source: Source) -> Result<Arc<DecryptedSeed>, Error> {
        let digest = source.digest();
        if let Some(known) = self.seeds.get(&digest).await {
            return Ok(known);
        }
        if let Some((when, error)) = self.refused.lock().get(&digest)
            && when.elapsed() < self.second * REFUSED_FOR
        {
            return Err(error.clone());
        }
        // Whoever wants the same meanwhile waits for this answer.
        let asked = self.seeds.try_get_with(digest, self.ask(&source)).await;
        self.count_seeds();
        asked.map_err(|error| {
            let error = Error::clone(&error);
            let mut refused = self.refused.lock();
            refused.retain(|_, (when, _)| when.elapsed() < self.second * REFUSED_FOR);
            refused.insert(digest, (Instant::now(), error.clone()));
            error
        })
    }

    async fn ask(&self, source: &Source) -> Result<Arc<DecryptedSeed>, Error> {
        let unavailable = |why: String| Error::Unavailable { provider: self.name.clone(), why };
        let plain = self.service.decrypt(source).await.map_err(|failure| unavailable(failure.to_string()))?;
        let seed = Seed::from_bytes(&plain)
            .ok_or_else(|| unavailable(format!("Decrypt gave {} bytes, 32 were encrypted", plain.len())))?;
        Ok(Arc::new(DecryptedSeed { seed, key_id_hash: object::hash(&source.key_id) }))
    }

    /// Whether this was wrapped under the key that the service encrypts with now. As long as that is not known: yes.
    pub(super) fn is_current(&self, wrapped: &[u8]) -> bool {
        let Some(object) = wrapped.strip_prefix(self.prefix.as_slice()) else { return false };
        let Some(writing) = self.writing.load_full() else { return true };
        Source::decode(object).is_some_and(|(source, _)| source.key_id == writing.source.key_id)
    }
}

/// What a service says of itself, but for its key. `v2beta1` is the same protocol under an earlier name.
fn check_status(status: &StatusResponse, before: Option<&str>) -> Result<(), String> {
    let shown = |text: &str| text.chars().take(64).collect::<String>();
    if !matches!(status.version.as_str(), "v2" | "v2beta1") {
        return Err(format!("Status: version is {:?}, must be v2", shown(&status.version)));
    }
    if before.is_some_and(|before| before != status.version) {
        return Err("Status: the version changed while running".into());
    }
    if status.healthz != "ok" {
        return Err(format!("Status: healthz is {:?}", shown(&status.healthz)));
    }
    Ok(())
}

/// The id of the key of the service under which this was wrapped, as a hash.
pub(super) fn key_id_hash(object: &[u8]) -> Option<String> {
    Source::decode(object).map(|(source, _)| object::hash(&source.key_id))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
