//! Which objects of one kind were seen, so that an event that changes nothing that is stored wakes nobody.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use kube::{core::ObjectMeta, runtime::watcher::Event};

use super::parts::Parts;

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
    parts: Parts,
    hash: u64,
    list: u64,
}

impl Seen {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(fingerprint: Fingerprint) -> Self {
        Self { fingerprint, objects: HashMap::new(), list: 0 }
    }

    /// Takes an event and gives the namespaces in which something has changed, with what has. `part` says in which part of the state
    /// an object is stored, if it is.
    pub fn observe<K>(
        &mut self,
        event: &Event<K>,
        meta: impl Fn(&K) -> &ObjectMeta,
        part: impl Fn(&ObjectMeta) -> Option<Parts>,
    ) -> Vec<(String, Parts)> {
        match event {
            Event::Init => {
                self.list += 1;
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => {
                let meta = meta(object);
                self.apply(meta, part(meta)).into_iter().collect()
            }
            Event::Delete(object) => {
                let meta = meta(object);
                let known = self.objects.remove(meta.uid.as_deref().unwrap_or_default());
                let parts = known.map(|object| object.parts).or_else(|| part(meta));
                parts.map(|parts| (meta.namespace.clone().unwrap_or_default(), parts)).into_iter().collect()
            }
            Event::InitDone => {
                let list = self.list;
                let gone = self.objects.extract_if(|_, object| object.list != list);
                gone.map(|(_, object)| (object.namespace, object.parts)).collect()
            }
        }
    }

    fn apply(&mut self, meta: &ObjectMeta, parts: Option<Parts>) -> Option<(String, Parts)> {
        let uid = meta.uid.clone().unwrap_or_default();
        let namespace = meta.namespace.clone().unwrap_or_default();
        let Some(parts) = parts else {
            return self.objects.remove(&uid).map(|old| (namespace, old.parts));
        };
        let (hash, list) = (self.hash(meta), self.list);
        let old = self.objects.insert(uid, Object { namespace: namespace.clone(), parts, hash, list });
        match old {
            Some(old) if old.hash == hash => None,
            Some(old) => Some((namespace, parts.union(old.parts))),
            None => Some((namespace, parts)),
        }
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
        let part = |meta: &ObjectMeta| (meta.generation != Some(0)).then_some(Parts::MACHINES);
        let observed = seen.observe(&event, |meta| meta, part);
        assert!(observed.iter().all(|(_, parts)| *parts == Parts::MACHINES));
        observed.into_iter().map(|(namespace, _)| namespace).collect()
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
    fn object_that_moves_to_another_part_wakes_both() {
        let mut seen = Seen::new(Fingerprint::ResourceVersion);
        let mut observe = |event, parts| seen.observe(&event, |meta| meta, |_: &ObjectMeta| parts);
        observe(Event::Apply(object("a", "1", 1)), Some(Parts::MACHINES));
        let moved = observe(Event::Apply(object("a", "2", 1)), Some(Parts::OBJECTS));
        assert_eq!(moved, [("of-a".to_owned(), Parts::ALL)]);
        assert_eq!(observe(Event::Delete(object("a", "3", 1)), None), [("of-a".to_owned(), Parts::OBJECTS)]);
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
