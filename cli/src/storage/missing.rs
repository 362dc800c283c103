//! A warning after a restore: objects whose chunks are gone.

use repot_storage::{Missing, Store};

/// Objects that the warning names.
const NAMES: usize = 10;

/// Looks for objects that cannot be read, and tells of them on stderr. That there are some is no failure: what was asked for is
/// done.
pub(super) async fn warn(store: &Store) -> anyhow::Result<()> {
    if let Some(text) = text(&store.missing_chunks(NAMES).await?) {
        eprint!("{text}");
    }
    Ok(())
}

/// What to say; nothing where all is well.
fn text(missing: &Missing) -> Option<String> {
    let Missing { objects, incomplete, first, unreadable } = missing;
    let mut text = String::new();
    if *incomplete > 0 {
        let more = if (first.len() as u64) < *incomplete { ", and more" } else { "" };
        text += &format!(
            "warning: {incomplete} of {objects} objects cannot be read, because chunks of them are gone: {}{more}\n\
             The snapshot of etcd may be older than --chunk-retention, or --chunk-store may have lost objects.\n\
             Restore the objects of the chunk store (in a versioned bucket, remove their delete markers), or restore a newer\n\
             snapshot. `repot storage fsck` names all of them; `fsck --repair` puts them into quarantine.\n",
            first.join(", "),
        );
    }
    if *unreadable > 0 {
        text += &format!(
            "warning: {unreadable} of {objects} objects cannot be opened; `repot storage fsck` says why\n"
        );
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_first_objects_and_says_whether_there_are_more() {
        assert_eq!(text(&Missing { objects: 7, ..Missing::default() }), None);
        let names = vec!["a/b".to_owned(), "a/c".to_owned()];
        let two = Missing { objects: 7, incomplete: 2, first: names.clone(), unreadable: 0 };
        let told = text(&two).expect("a warning");
        assert!(told.contains("2 of 7") && told.contains("a/b, a/c\n") && !told.contains("opened"), "{told}");
        let told = text(&Missing { incomplete: 3, unreadable: 1, ..two }).expect("a warning");
        assert!(told.contains("a/b, a/c, and more") && told.contains("1 of 7"), "{told}");
    }
}
