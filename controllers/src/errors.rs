//! What all errors of controllers have in common: their text, and the answers of kube-apiserver that controllers expect.

/// An error and everything that caused it, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Whether kube-apiserver refused a write because the object has changed since it was read.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    has_code(error, 409)
}

/// Whether kube-apiserver answered that the object does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    has_code(error, 404)
}

/// Whether kube-apiserver answered that the user lacks the right.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    has_code(error, 403)
}

fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
