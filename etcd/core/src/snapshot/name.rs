//! What a snapshot is called: `<Full|Incr>-<start>-<last>-<unix seconds>[.gz|.Z|.zlib][.final]`. Meets no clock and no store.

use std::{cmp::Ordering, fmt, str::FromStr};

/// A revision of etcd's key space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// The one after this.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A whole database.
    Full,
    /// The events between two revisions, both included.
    Delta,
}

impl Kind {
    /// The word in names.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "Full",
            Self::Delta => "Incr",
        }
    }
}

/// How the bytes of an object are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, the usual one.
    Gzip,
    /// zlib.
    Zlib,
    /// LZW as in GIF; read only.
    Lzw,
}

impl Compression {
    /// The suffix in names.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zlib => ".zlib",
            Self::Lzw => ".Z",
        }
    }
}

/// The suffix of a snapshot after which nothing was written by this etcd.
const FINAL: &str = ".final";

/// The name of a snapshot, taken apart.
///
/// Names are ordered as they are restored: by last revision, then by age.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotName {
    /// Whether it is a full snapshot or a delta.
    pub kind: Kind,
    /// The first revision in a delta; 0 for a full.
    pub start: Revision,
    /// The last revision in it.
    pub last: Revision,
    /// When it was begun, in seconds since 1970.
    pub created: i64,
    /// How its bytes are compressed.
    pub compression: Compression,
    /// Whether the etcd was to write nothing after it.
    pub is_final: bool,
}

/// A text that is no name of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no name of a snapshot: {why}")]
pub struct NameError {
    text: String,
    why: &'static str,
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, compression) = (self.kind.word(), self.compression.suffix());
        let end = if self.is_final { FINAL } else { "" };
        write!(f, "{kind}-{:08}-{:08}-{}{compression}{end}", self.start.0, self.last.0, self.created)
    }
}

impl FromStr for SnapshotName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |why| NameError { text: text.to_owned(), why };
        let parts: Vec<&str> = text.split('-').collect();
        let [kind, start, last, rest] = parts.as_slice() else {
            return Err(refuse("it has not four parts"));
        };
        let kind = match *kind {
            "Full" => Kind::Full,
            "Incr" => Kind::Delta,
            _ => return Err(refuse("it begins with neither Full nor Incr")),
        };
        let (time, suffixes) = rest.find('.').map_or((*rest, ""), |at| rest.split_at(at));
        let (compression, is_final) =
            parse_suffixes(suffixes).ok_or_else(|| refuse("its suffix is not known"))?;
        let start = parse_number(start).ok_or_else(|| refuse("its first revision is no number"))?;
        let last = parse_number(last).ok_or_else(|| refuse("its last revision is no number"))?;
        let created = parse_number(time).ok_or_else(|| refuse("its time is no number"))?;
        if start > last {
            return Err(refuse("it ends before it begins"));
        }
        Ok(Self { kind, start: Revision(start), last: Revision(last), created, compression, is_final })
    }
}

/// Digits only: signs and spaces would make two texts of one name.
fn parse_number(text: &str) -> Option<i64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn parse_suffixes(text: &str) -> Option<(Compression, bool)> {
    let (compression, is_final) = text.strip_suffix(FINAL).map_or((text, false), |rest| (rest, true));
    let all = [Compression::None, Compression::Gzip, Compression::Zlib, Compression::Lzw];
    Some((all.into_iter().find(|one| one.suffix() == compression)?, is_final))
}

impl Ord for SnapshotName {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |name: &Self| (name.last, name.created, name.kind, name.start, name.is_final);
        key(self).cmp(&key(other)).then_with(|| self.compression.suffix().cmp(other.compression.suffix()))
    }
}

impl PartialOrd for SnapshotName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// How a snapshot rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As etcd-backup-restore writes it.
    Clear,
    /// That, sealed.
    Sealed,
}

impl Form {
    /// Where new snapshots of this form are below the prefix of a store.
    #[must_use]
    pub fn directory(self) -> &'static str {
        match self {
            Self::Clear => "v2",
            Self::Sealed => "sealed",
        }
    }

    /// What is behind the name of a snapshot in the name of its record.
    #[must_use]
    pub fn record(self) -> &'static str {
        match self {
            Self::Clear => ".json",
            Self::Sealed => ".sealed.json",
        }
    }
}

/// Where a name stands below the prefix of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directory {
    /// A snapshot.
    Snapshot {
        /// Its name.
        name: SnapshotName,
        /// Whether it is sealed.
        form: Form,
    },
    /// A part of a snapshot that a store could not take in one piece; whatever wrote it looks after it.
    Chunk,
}

/// Reads a path relative to the prefix: `v2/<name>`, `v1/Backup-<unix seconds>/<name>`, `sealed/<name>`, or a chunk below one of the
/// first two.
///
/// # Errors
/// [`NameError`] for everything else.
pub fn parse_path(path: &str) -> Result<Directory, NameError> {
    let parts: Vec<&str> = path.split('/').collect();
    let (name, form) = match parts.as_slice() {
        ["v2", name] | ["v1", _, name] => (name, Form::Clear),
        ["sealed", name] => (name, Form::Sealed),
        ["v2", name, _] | ["v1", _, name, _] => {
            return name.parse::<SnapshotName>().map(|_| Directory::Chunk);
        }
        _ => return Err(NameError { text: path.to_owned(), why: "it lies neither in v1, v2 nor sealed" }),
    };
    name.parse().map(|name| Directory::Snapshot { name, form })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_name() -> impl Strategy<Value = SnapshotName> {
        let kind = prop_oneof![Just(Kind::Full), Just(Kind::Delta)];
        let compression = prop_oneof![
            Just(Compression::None),
            Just(Compression::Gzip),
            Just(Compression::Zlib),
            Just(Compression::Lzw)
        ];
        (kind, 0..=i64::MAX, 0..=i64::MAX, 0..=i64::MAX, compression, any::<bool>()).prop_map(
            |(kind, a, b, created, compression, is_final)| SnapshotName {
                kind,
                start: Revision(a.min(b)),
                last: Revision(a.max(b)),
                created,
                compression,
                is_final,
            },
        )
    }

    proptest! {
        #[test]
        fn a_printed_name_reads_as_itself(name in any_name()) {
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "(Full|Incr|v[12]|[-./+ 0-9a-z])*") {
            if let Ok(name) = text.parse::<SnapshotName>() {
                // What differs from its printed form has other zeros in front, nothing else.
                prop_assert_eq!(name.to_string().parse(), Ok(name));
            }
            let _ = parse_path(&text);
        }

        #[test]
        fn names_are_in_order_of_what_they_reach(a in any_name(), b in any_name()) {
            if a.last != b.last {
                prop_assert_eq!(a.cmp(&b), a.last.cmp(&b.last));
            }
            prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        }
    }

    #[test]
    fn names_of_etcd_backup_restore_are_read() {
        let name = |text: &str| text.parse::<SnapshotName>();
        let full = name("Full-00000000-00009002-1565021494.gz.final").expect("a full");
        assert_eq!(
            (full.kind, full.start.0, full.last.0, full.created, full.compression, full.is_final),
            (Kind::Full, 0, 9002, 1_565_021_494, Compression::Gzip, true)
        );
        let delta = name("Incr-00009003-123456789012-1565021594").expect("a delta");
        assert_eq!((delta.kind, delta.last.0, delta.is_final), (Kind::Delta, 123_456_789_012, false));
        for (suffix, compression) in [(".Z", Compression::Lzw), (".zlib", Compression::Zlib)] {
            assert_eq!(name(&format!("Full-0-1-2{suffix}")).map(|n| n.compression), Ok(compression));
        }
        assert_eq!(name("Full-00000000-00000001-2.final").map(|n| n.is_final), Ok(true));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for (text, why) in [
            ("", "four parts"),
            ("Full-1-2", "four parts"),
            ("Full-00000000-00000009-1-2", "four parts"),
            ("Part-00000000-00000009-1", "neither Full nor Incr"),
            ("Full-00000009-00000008-1", "ends before"),
            ("Full-0000000x-00000008-1", "first revision"),
            ("Full-00000000--1", "last revision"),
            ("Full-00000000-99999999999999999999-1", "last revision"),
            ("Full-00000000-00000008-", "time"),
            ("Full-00000000-00000008-+1", "time"),
            ("Full-00000000-00000008-1.gz#1", "suffix"),
            ("Full-00000000-00000008-1.final.gz", "suffix"),
            ("Full-00000000-00000008-1.gz.json", "suffix"),
        ] {
            let error = text.parse::<SnapshotName>().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn both_layouts_are_read_and_chunks_are_known() {
        let name = "Full-00000000-00000008-1.gz";
        for (path, snapshot) in [
            (format!("v2/{name}"), true),
            (format!("sealed/{name}"), true),
            (format!("v1/Backup-1565021494/{name}"), true),
            (format!("v2/{name}/000001"), false),
            (format!("v1/Backup-1565021494/{name}/000001"), false),
        ] {
            assert_eq!(matches!(parse_path(&path), Ok(Directory::Snapshot { .. })), snapshot, "{path}");
            assert!(parse_path(&path).is_ok(), "{path}");
        }
        for path in [
            format!("v3/{name}"),
            name.to_owned(),
            format!("integrity/{name}.json"),
            format!("sealed/{name}/000001"),
            "v2/x".into(),
        ] {
            assert!(parse_path(&path).is_err(), "{path}");
        }
    }
}
