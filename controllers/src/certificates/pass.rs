//! One look at everything that is kept, and what follows from it.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use repot_api::names::ROTATE_CERTIFICATES;
use repot_certs::rotation::{Next, decide};
use time::OffsetDateTime;

use super::{Keeper, authorities::Authorities, encryption, error::Error, secrets, serving::Serving};

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
        let mut observed = observe(&secrets, &self.kept).await?;
        let mut errors = Vec::new();
        if let Some(wanted) = &self.encryption {
            errors.extend(encryption::ensure(&secrets, wanted, &mut observed.authorities).await.err());
        }
        // Where others issue the certificates, the key is all there is to do.
        if !self.kept.serving.is_empty() {
            errors.extend(self.rotate(&secrets, &mut observed).await.err());
        }
        Error::all(errors)
    }

    /// Authorities, certificates and bundles.
    async fn rotate(&self, secrets: &Api<Secret>, observed: &mut Observed) -> Result<(), Error> {
        let mut next = self.decide(observed);
        if next.make_authority {
            let number = observed.authorities.add(now(), lifetime(self.lifetimes.authority))?;
            self.store(secrets, &mut observed.authorities).await?;
            self.metrics.count_renewal(&self.kept.authorities);
            tracing::info!(number, "authority made");
            next = self.decide(observed);
        }
        let mut errors = self.sign(secrets, observed, &next).await;
        if !next.remove.is_empty() && errors.is_empty() {
            observed.authorities.remove(&next.remove);
            self.store(secrets, &mut observed.authorities).await?;
            tracing::info!(numbers = ?next.remove, "authorities removed, which nothing is signed by any more");
        }
        errors.extend(self.publish(secrets, observed, next.is_settled).await);
        self.report(observed);
        Error::all(errors)
    }

    fn decide(&self, observed: &Observed) -> Next {
        let Observed { authorities, serving } = observed;
        let request = observed.request();
        let certificates: Vec<_> = serving.iter().map(|one| one.state(authorities, request)).collect();
        let overlap = lifetime(self.lifetimes.overlap);
        decide(&authorities.states(), &certificates, authorities.is_requested(), overlap, now())
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
        for target in &self.kept.targets {
            errors.extend(target.publish(&self.published, &bundle, is_settled).await.err());
        }
        self.metrics.set_unpublished(errors.len());
        for one in &mut observed.serving {
            let Some(secret) = one.with_bundle(&bundle) else { continue };
            match secrets::write(secrets, &secret).await {
                Ok(secret) => one.written(secret),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() && observed.authorities.trust(now()) {
            errors.extend(self.store(secrets, &mut observed.authorities).await.err());
        }
        errors
    }

    fn report(&self, observed: &Observed) {
        let Observed { authorities, serving } = observed;
        let states: Vec<_> = serving.iter().map(|one| one.state(authorities, None)).collect();
        self.metrics.set_ends(&self.kept.authorities, &authorities.states(), &states);
    }
}

/// Reads all Secrets.
///
/// # Errors
/// Those of requests, [`Error::Foreign`] and [`Error::Damaged`].
pub(super) async fn observe(secrets: &Api<Secret>, kept: &super::Kept) -> Result<Observed, Error> {
    let stored = secrets::read(secrets, &kept.authorities).await?;
    let authorities = Authorities::read(&kept.authorities, stored)?;
    let mut serving = Vec::new();
    for wanted in &kept.serving {
        let secret = secrets::read(secrets, &wanted.name).await?;
        serving.push(Serving::new(wanted.clone(), secret));
    }
    Ok(Observed { authorities, serving })
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
