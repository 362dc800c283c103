//! The first encryption key of the API server's store. It is made once in the life of an installation, and never changed here.

use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{Api, ResourceExt};
use repot_api::names::ENCRYPTION_KEY_MADE;

use super::{EncryptionSecret, authorities::Authorities, error::Error, secrets};

/// The Lease of API servers whose store is known, where nothing else is said to them.
const HIGH_WATER_MARK: &str = "repot-high-water-mark";
/// Key of the configuration in the Secret.
const FILE: &str = "encryption-config.yaml";

/// Makes the Secret, where neither it nor a sign of an earlier one is there: a record on the Secret of authorities, or the Lease by which
/// API servers know how new their store is. The record is written after the key, which is created and never replaced; one that is
/// lost is written again as long as the key is there.
///
/// # Errors
/// [`Error::KeyGone`] or [`Error::KeyOfEarlierStore`] where there was one, and those of requests.
pub(super) async fn ensure(
    client: &Api<Secret>,
    leases: &Api<Lease>,
    wanted: &EncryptionSecret,
    authorities: &mut Authorities,
) -> Result<(), Error> {
    let EncryptionSecret { name, new_key } = wanted;
    // Whoever has made it: a person may bring a configuration with a KMS.
    let found = client.get_opt(name).await.map_err(Error::of("read", format!("Secret {name}")))?;
    let record = authorities.secret().annotations().get(ENCRYPTION_KEY_MADE);
    match (found, record) {
        (Some(_), Some(_)) => return Ok(()),
        (Some(found), None) => {
            let made = found.creation_timestamp().map(|time| time.0.to_string());
            return write_record(client, authorities, made.unwrap_or_else(now)).await;
        }
        (None, Some(made)) => return Err(Error::KeyGone(name.clone(), made.clone())),
        (None, None) => {}
    }
    let text = new_key().map_err(Error::NewKey)?;
    let mut secret = secrets::new(name, "Opaque");
    secret.data = secrets::data([(FILE.to_owned(), text.as_str())]);
    let earlier = leases.get_opt(HIGH_WATER_MARK).await;
    if earlier.map_err(Error::of("read", format!("Lease {HIGH_WATER_MARK}")))?.is_some() {
        return Err(Error::KeyOfEarlierStore(name.clone(), HIGH_WATER_MARK));
    }
    secrets::write(client, &secret).await?;
    tracing::info!(
        secret = name,
        "encryption key made; keep a copy: without it no stored object can be read"
    );
    write_record(client, authorities, now()).await
}

async fn write_record(
    client: &Api<Secret>,
    authorities: &mut Authorities,
    made: String,
) -> Result<(), Error> {
    let mut recorded = authorities.secret().clone();
    recorded.annotations_mut().insert(ENCRYPTION_KEY_MADE.to_owned(), made);
    authorities.written(secrets::write(client, &recorded).await?);
    Ok(())
}

fn now() -> String {
    Timestamp::now().to_string()
}
