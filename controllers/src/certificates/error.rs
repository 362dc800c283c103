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
        "Secret {0} exists and does not have the label app.kubernetes.io/managed-by=repot-certs; delete it, or use another name"
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
