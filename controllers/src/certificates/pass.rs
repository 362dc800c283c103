//! One look at everything that is kept, and what follows from it.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{Api, ResourceExt};
use repot_api::names::ROTATE_CERTIFICATES;
use repot_certs::rotation::{Circumstances, Next, decide};
use time::OffsetDateTime;

use super::{Keeper, Target, authorities::Authorities, encryption, error::Error, secrets, serving::Serving};

/// How long one APIService or webhook configuration may take.
const TARGET: Duration = Duration::from_secs(5);

/// What was read.
pub(super) struct Observed {
    pub(super) authorities: Authorities,
    pub(super) serving: Vec<Serving>,
}

impl Observed {
    /// The last request for new serving certificates.
    pub(super) fn request(&self) -> Option<&String> {
        self.authorities.secret().annotations().get(ROTATE_CERTIFICATES).filter(|request| !request.is_empty())
    }
}

impl Keeper {
    /// One pass. What fails does not hold up the rest.
    ///
    /// # Errors
    /// All that failed.
    pub(super) async fn pass(&self) -> Result<(), Error> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.kept.namespace);
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.kept.namespace);
        let (mut observed, mut errors) = observe(&secrets, &self.kept).await?;
        if let Some(wanted) = &self.encryption {
            let ensured = encryption::ensure(&secrets, &leases, wanted, &mut observed.authorities).await;
            errors.extend(ensured.err());
        }
        // Where others issue the certificates, the key is all there is to do.
        if !self.kept.serving.is_empty() {
            self.rotate(&secrets, &mut observed, &mut errors).await;
        }
        Error::all(errors)
    }

    /// Authorities, bundles and certificates, in this order: nobody is to meet a certificate before the bundle that covers it.
    async fn rotate(&self, secrets: &Api<Secret>, observed: &mut Observed, errors: &mut Vec<Error>) {
        let mut next = self.decide(observed, true);
        if next.make_authority {
            errors.extend(self.make_authority(secrets, observed).await.err());
            next = self.decide(observed, true);
        }
        let unpublished = self.publish(secrets, observed, next.is_settled).await;
        next = self.decide(observed, unpublished.is_empty());
        errors.extend(unpublished);
        let unsigned = self.sign(secrets, observed, &next).await;
        if !next.remove.is_empty() && unsigned.is_empty() {
            errors.extend(self.remove(secrets, observed, &next.remove).await.err());
        }
        errors.extend(unsigned);
        self.report(observed, next.signer);
    }

    fn decide(&self, observed: &Observed, is_published: bool) -> Next {
        let Observed { authorities, serving } = observed;
        let request = observed.request();
        let certificates: Vec<_> = serving.iter().map(|one| one.state(authorities, request)).collect();
        let given = Circumstances {
            is_requested: authorities.is_requested(),
            is_published,
            overlap: lifetime(self.lifetimes.overlap),
            now: now(),
        };
        decide(&authorities.states(), &certificates, &given)
    }

    /// Adds one, where it could be stored.
    async fn make_authority(&self, secrets: &Api<Secret>, observed: &mut Observed) -> Result<(), Error> {
        let mut with_new = observed.authorities.clone();
        let number = with_new.add(now(), lifetime(self.lifetimes.authority))?;
        self.store(secrets, &mut with_new).await?;
        observed.authorities = with_new;
        self.metrics.count_renewal(&self.kept.authorities);
        tracing::info!(number, "authority made");
        Ok(())
    }

    async fn remove(
        &self,
        secrets: &Api<Secret>,
        observed: &mut Observed,
        numbers: &[u32],
    ) -> Result<(), Error> {
        let mut without = observed.authorities.clone();
        without.remove(numbers);
        self.store(secrets, &mut without).await?;
        observed.authorities = without;
        tracing::info!(?numbers, "authorities removed, which nothing is signed by any more");
        Ok(())
    }

    async fn store(&self, secrets: &Api<Secret>, authorities: &mut Authorities) -> Result<(), Error> {
        let written = secrets::write(secrets, authorities.secret()).await?;
        authorities.written(written);
        Ok(())
    }

    /// Signs what is due, and says what failed.
    async fn sign(&self, secrets: &Api<Secret>, observed: &mut Observed, next: &Next) -> Vec<Error> {
        let request = observed.request().cloned();
        let Observed { authorities, serving } = observed;
        let Some(number) = next.signer else { return Vec::new() };
        let signer = match authorities.signer(number) {
            Ok(Some(signer)) => signer,
            Ok(None) => return Vec::new(),
            Err(error) => return vec![error],
        };
        let now = now();
        // A certificate that outlives its authority is worth nothing.
        let left = authorities.until(number).map_or(time::Duration::ZERO, |until| until - now);
        let lifetime = lifetime(self.lifetimes.serving).min(left);
        let mut errors = Vec::new();
        for one in serving.iter_mut().filter(|one| next.sign.iter().any(|name| name == one.name())) {
            let signed = one.sign(&signer, request.as_ref(), now, lifetime);
            let written = match signed {
                Ok(secret) => secrets::write(secrets, &secret).await,
                Err(error) => Err(error),
            };
            match written {
                Ok(secret) => {
                    tracing::info!(secret = one.name(), authority = number, "serving certificate issued");
                    self.metrics.count_renewal(one.name());
                    one.written(secret);
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// Sees to it that everybody has the bundle, and says what failed. When nothing did, the time is recorded for new authorities.
    async fn publish(&self, secrets: &Api<Secret>, observed: &mut Observed, is_settled: bool) -> Vec<Error> {
        let bundle = observed.authorities.bundle();
        let mut errors = Vec::new();
        for one in &mut observed.serving {
            let Some(secret) = one.with_bundle(&bundle) else { continue };
            match secrets::write(secrets, &secret).await {
                Ok(secret) => one.written(secret),
                Err(error) => errors.push(error),
            }
        }
        let targets = self.kept.targets.iter().map(|target| self.publish_to(target, &bundle, is_settled));
        let failed: Vec<Error> = join_all(targets).await.into_iter().filter_map(Result::err).collect();
        self.metrics.set_unpublished(failed.len());
        errors.extend(failed);
        if errors.is_empty() {
            let mut known = observed.authorities.clone();
            if known.trust(now()) {
                match self.store(secrets, &mut known).await {
                    Ok(()) => observed.authorities = known,
                    Err(error) => errors.push(error),
                }
            }
        }
        errors
    }

    /// One that does not answer must not hold up the others.
    async fn publish_to(&self, target: &Target, bundle: &str, is_settled: bool) -> Result<(), Error> {
        let published = target.publish(&self.published, bundle, is_settled);
        let silent = |_| Error::Silent(target.to_string(), TARGET.as_secs());
        tokio::time::timeout(TARGET, published).await.map_err(silent)?
    }

    fn report(&self, observed: &Observed, signer: Option<u32>) {
        let Observed { authorities, serving } = observed;
        let states: Vec<_> = serving.iter().map(|one| one.state(authorities, None)).collect();
        let end = signer.and_then(|number| authorities.until(number));
        self.metrics.set_ends(&self.kept.authorities, end, &states);
    }
}

/// Reads all Secrets; gives what of them cannot be used, too.
///
/// # Errors
/// Those that make all of it impossible.
pub(super) async fn observe(
    secrets: &Api<Secret>,
    kept: &super::Kept,
) -> Result<(Observed, Vec<Error>), Error> {
    let stored = secrets::read(secrets, &kept.authorities).await?;
    let authorities = Authorities::read(&kept.authorities, stored);
    let mut errors = authorities.damages();
    let mut serving = Vec::new();
    for wanted in &kept.serving {
        match secrets::read(secrets, &wanted.name).await {
            Ok(secret) => serving.push(Serving::new(wanted.clone(), secret)),
            Err(error) => errors.push(error),
        }
    }
    Ok((Observed { authorities, serving }, errors))
}

/// Whole seconds, as certificates have them.
pub(super) fn now() -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now)
}

/// As certificates count time.
pub(super) fn lifetime(duration: std::time::Duration) -> time::Duration {
    time::Duration::seconds(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 4))
}
