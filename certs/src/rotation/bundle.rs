//! The bundle of authorities that clients are to trust.

/// The certificates of authorities as one PEM text, newest first, each with a line break at its end.
///
/// `newest_first` are PEM texts. The same authorities give the same text.
#[must_use]
pub fn bundle<'a>(newest_first: impl IntoIterator<Item = &'a str>) -> String {
    let lines = newest_first.into_iter().map(|pem| format!("{}\n", pem.trim_end()));
    lines.collect()
}
