//! A field of an Etcd that only later versions of etcd know. The image tells no version, so this can only be a warning.

use repot_apimachinery::value::at;
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
};

const SKIPS_SANS: &str = "/spec/etcd/peerUrlTls/skipClientSANVerification";

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let is_set = |object: &Value| at(object, SKIPS_SANS) == Some(&Value::Bool(true));
    let is_made = change.operation != Operation::Delete && change.target.resource == "etcds";
    if !is_made || !is_set(&change.new) || is_set(&change.old) {
        return Vec::new();
    }
    let reason = "etcd before 3.6 does not know the flag for it, and members with such an image do not start";
    let advice =
        "use an image with etcd 3.6 or later; the condition EtcdVersionSupported tells what members run";
    vec![Finding::warn("spec.etcd.peerUrlTls.skipClientSANVerification", reason, advice)]
}
