//! Which objects of one kind were seen, so that an event that changes nothing that is stored wakes nobody.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use kube::{core::ObjectMeta, runtime::watcher::Event};

/// What makes an object another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fingerprint {
    /// Any write, for kinds whose status is stored and for kinds without generations.
    ResourceVersion,
    /// The spec, labels and annotations, for kinds whose status changes often and is not stored: a Machine reports its health.
    Generation,
}

/// Objects of one kind that matter, by uid.
#[derive(Debug)]
pub struct Seen {
    fingerprint: Fingerprint,
    objects: HashMap<String, Object>,
    /// Counts lists, so that after a list those are found that it no longer has.
    list: u64,
}

#[derive(Debug)]
struct Object {
    namespace: String,
    hash: u64,
    list: u64,
}

impl Seen {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(fingerprint: Fingerprint) -> Self {
        Self { fingerprint, objects: HashMap::new(), list: 0 }
    }

    /// Takes an event and gives the namespaces in which something has changed. `matters` says whether an object is stored.
    pub fn observe<K>(
        &mut self,
        event: &Event<K>,
        meta: impl Fn(&K) -> &ObjectMeta,
        matters: impl Fn(&ObjectMeta) -> bool,
    ) -> Vec<String> {
        match event {
            Event::Init => {
                self.list += 1;
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => {
                let meta = meta(object);
                self.apply(meta, matters(meta)).into_iter().collect()
            }
            Event::Delete(object) => {
                let meta = meta(object);
                let known = self.objects.remove(meta.uid.as_deref().unwrap_or_default()).is_some();
                let namespace = meta.namespace.clone().unwrap_or_default();
                (known || matters(meta)).then_some(namespace).into_iter().collect()
            }
            Event::InitDone => {
                let list = self.list;
                let gone = self.objects.extract_if(|_, object| object.list != list);
                gone.map(|(_, object)| object.namespace).collect()
            }
        }
    }

    fn apply(&mut self, meta: &ObjectMeta, matters: bool) -> Option<String> {
        let (uid, namespace) =
            (meta.uid.clone().unwrap_or_default(), meta.namespace.clone().unwrap_or_default());
        if !matters {
            return self.objects.remove(&uid).map(|_| namespace);
        }
        let object = Object { namespace: namespace.clone(), hash: self.hash(meta), list: self.list };
        let hash = object.hash;
        let old = self.objects.insert(uid, object);
        old.is_none_or(|old| old.hash != hash).then_some(namespace)
    }

    fn hash(&self, meta: &ObjectMeta) -> u64 {
        let mut hasher = DefaultHasher::new();
        match (self.fingerprint, meta.generation) {
            (Fingerprint::Generation, Some(generation)) => {
                generation.hash(&mut hasher);
                meta.labels.hash(&mut hasher);
                meta.annotations.hash(&mut hasher);
                meta.deletion_timestamp.is_some().hash(&mut hasher);
            }
            _ => meta.resource_version.hash(&mut hasher),
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, version: &str, generation: i64) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.to_owned()),
            namespace: Some(format!("of-{uid}")),
            resource_version: Some(version.to_owned()),
            generation: Some(generation),
            ..ObjectMeta::default()
        }
    }

    fn observe(seen: &mut Seen, event: Event<ObjectMeta>) -> Vec<String> {
        seen.observe(&event, |meta| meta, |meta| meta.generation != Some(0))
    }

    #[test]
    fn status_wakes_nobody_where_it_is_not_stored() {
        for (fingerprint, wakes) in [(Fingerprint::Generation, false), (Fingerprint::ResourceVersion, true)] {
            let mut seen = Seen::new(fingerprint);
            assert_eq!(observe(&mut seen, Event::Apply(object("a", "1", 1))), ["of-a"]);
            assert_eq!(!observe(&mut seen, Event::Apply(object("a", "2", 1))).is_empty(), wakes);
            assert_eq!(observe(&mut seen, Event::Apply(object("a", "3", 2))), ["of-a"]);
            let mut labelled = object("a", "4", 2);
            labelled.labels = Some([("node".to_owned(), "n".to_owned())].into());
            assert_eq!(observe(&mut seen, Event::Apply(labelled)), ["of-a"]);
            assert_eq!(observe(&mut seen, Event::Delete(object("a", "4", 2))), ["of-a"]);
        }
    }

    #[test]
    fn list_wakes_only_for_what_it_changed() {
        let mut seen = Seen::new(Fingerprint::ResourceVersion);
        for (uid, version) in [("same", "1"), ("changed", "1"), ("gone", "1")] {
            observe(&mut seen, Event::Apply(object(uid, version, 1)));
        }
        let events = [
            Event::Init,
            Event::InitApply(object("same", "1", 1)),
            Event::InitApply(object("changed", "2", 1)),
            Event::InitApply(object("new", "2", 1)),
            Event::InitDone,
        ];
        let woken: Vec<_> = events.into_iter().flat_map(|event| observe(&mut seen, event)).collect();
        assert_eq!(woken, ["of-changed", "of-new", "of-gone"]);
    }

    #[test]
    fn objects_that_do_not_matter_wake_nobody_unless_they_did_before() {
        let mut seen = Seen::new(Fingerprint::ResourceVersion);
        assert_eq!(observe(&mut seen, Event::Apply(object("a", "1", 0))), [""; 0]);
        assert_eq!(observe(&mut seen, Event::Delete(object("a", "1", 0))), [""; 0]);
        assert_eq!(observe(&mut seen, Event::Apply(object("b", "1", 1))), ["of-b"]);
        assert_eq!(observe(&mut seen, Event::Apply(object("b", "2", 0))), ["of-b"]);
        assert_eq!(observe(&mut seen, Event::Apply(object("b", "3", 0))), [""; 0]);
    }
}
