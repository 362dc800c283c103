//! What can go wrong where certificates are kept.

/// Why certificates are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Validities that do not fit each other.
    #[error("validities do not fit: {0}")]
    Lifetimes(&'static str),
    /// kube-apiserver could not be asked or has refused something.
    #[error("failed to {verb} {object}: {}", text(.failure))]
    Api {
        /// What was tried.
        verb: &'static str,
        /// Kind and name.
        object: String,
        /// Why it failed; a part of the text already.
        failure: Box<kube::Error>,
    },
    /// A Secret of this name belongs to somebody else.
    #[error(
        "Secret {0} exists and does not have the label app.kubernetes.io/managed-by=repot-certs; set the label if it was made by repot certs, else use another name"
    )]
    Foreign(String),
    /// The Secret of authorities holds something that is no authority.
    #[error(
        "authority {number} in Secret {secret} is damaged: {what}; put a backup of the Secret back, or remove {number}.crt and {number}.key"
    )]
    Damaged {
        /// The Secret.
        secret: String,
        /// Number of the authority.
        number: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// No number is left for another authority.
    #[error(
        "authorities are numbered up to 4294967295, and that one is taken; remove its keys and annotations"
    )]
    Numbers,
    /// A certificate could not be issued.
    #[error(transparent)]
    Issue(#[from] repot_certs::Error),
    /// An object takes no bundle.
    #[error("{object} takes no bundle: {what}")]
    Target {
        /// Kind and name.
        object: String,
        /// What is wrong, and what to do instead.
        what: &'static str,
    },
    /// The encryption key is gone.
    #[error(
        "Secret {0} with the encryption key was made at {1} and is gone: without it no stored object can be read, so no other one is made; put it back from a backup, or see docs/operate/certificates.md"
    )]
    KeyGone(String, String),
    /// There is an installation whose encryption key is missing.
    #[error(
        "Secret {0} with the encryption key is missing, but Lease {1} says that there are stored objects; put the Secret back from a backup, or see docs/operate/certificates.md"
    )]
    KeyOfEarlierStore(String, &'static str),
    /// A target did not answer in time.
    #[error("{0} did not answer within {1} s")]
    Silent(String, u64),
    /// No key could be made.
    #[error("failed to make an encryption key: {0}")]
    NewKey(String),
    /// Several of these.
    #[error("{}", .0.iter().map(|error| crate::errors::causes(error)).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),
}

impl Error {
    /// Of a request, by what was tried.
    pub(super) fn of(verb: &'static str, object: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let object = object.into();
        move |failure| Self::Api { verb, object, failure: Box::new(failure) }
    }

    /// Nothing, the only one, or several.
    pub(super) fn all(mut errors: Vec<Error>) -> Result<(), Error> {
        match errors.len() {
            0 => Ok(()),
            1 => errors.pop().map_or(Ok(()), Err),
            _ => Err(Self::Several(errors)),
        }
    }
}

/// What kube-apiserver says, or why it could not be asked.
fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => crate::errors::causes(error),
    }
}
