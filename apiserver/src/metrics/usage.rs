//! What rests, by namespace.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use prometheus::{IntGaugeVec, core::Collector};
use repot_storage::Usage as Used;

use super::{gauges, integer};
use crate::resource::GroupResource;

const LABELS: [&str; 3] = ["group", "resource", "namespace"];

/// Gauges with a line for each namespace in which there is something.
pub(super) struct Usage {
    objects: IntGaugeVec,
    bytes: IntGaugeVec,
    /// What has a line.
    shown: Mutex<BTreeSet<[String; 3]>>,
}

impl Usage {
    pub(super) fn new() -> prometheus::Result<Self> {
        let objects = gauges("repot_namespace_objects", "Objects at rest in a namespace.", &LABELS)?;
        let bytes = gauges(
            "repot_namespace_bytes",
            "Bytes of the JSON form of objects at rest in a namespace.",
            &LABELS,
        )?;
        Ok(Self { objects, bytes, shown: Mutex::default() })
    }

    pub(super) fn collectors(&self) -> [Box<dyn Collector>; 2] {
        [Box::new(self.objects.clone()), Box::new(self.bytes.clone())]
    }

    /// Tells the usage of one resource; namespaces that are empty now have no line any more.
    pub(super) fn tell(&self, resource: &GroupResource, namespaces: &BTreeMap<String, Used>) {
        let line =
            |namespace: &String| [resource.group.clone(), resource.resource.clone(), namespace.clone()];
        let mut shown = self.shown.lock();
        let of_resource = |line: &[String; 3]| line[0] == resource.group && line[1] == resource.resource;
        shown.retain(|line| {
            let stays = !of_resource(line) || namespaces.contains_key(&line[2]);
            if !stays {
                let labels = line.each_ref().map(String::as_str);
                // They are there, since they are shown.
                let _ = (self.objects.remove_label_values(&labels), self.bytes.remove_label_values(&labels));
            }
            stays
        });
        for (namespace, used) in namespaces {
            let line = line(namespace);
            let labels = line.each_ref().map(String::as_str);
            self.objects.with_label_values(&labels).set(integer(used.objects));
            self.bytes.with_label_values(&labels).set(integer(used.bytes));
            shown.insert(line);
        }
    }
}
