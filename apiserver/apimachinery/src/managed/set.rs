//! A set of fields as a trie: what a field manager owns, or what a write changed.

use std::collections::BTreeMap;

use super::{
    element::Element,
    form::{Form, form},
};
use crate::schema::Schema;

/// A set of fields. Invariant: no branch of it is empty, so that equal sets are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(BTreeMap<Element, Branch>);

/// What a set says about one place and the places below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// Whether the place itself is in the set.
    pub member: bool,
    /// What the set says about the places below.
    pub below: Set,
}

impl Branch {
    /// The place itself and nothing below.
    #[must_use]
    pub fn leaf() -> Self {
        Self { member: true, below: Set::default() }
    }

    /// Whether neither the place nor anything below is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    fn unite(&mut self, other: Self) {
        self.member |= other.member;
        self.below.unite(other.below);
    }
}

impl Set {
    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a branch to what is there.
    pub fn put(&mut self, element: Element, branch: Branch) {
        if !branch.is_empty() {
            self.0.entry(element).or_default().unite(branch);
        }
    }

    /// The branch at an element.
    #[must_use]
    pub fn branch(&self, element: &Element) -> Option<&Branch> {
        self.0.get(element)
    }

    /// The branches in order.
    pub fn branches(&self) -> impl Iterator<Item = (&Element, &Branch)> {
        self.0.iter()
    }

    /// Adds everything that is in another set.
    pub fn unite(&mut self, other: Self) {
        if self.0.is_empty() {
            self.0 = other.0;
            return;
        }
        for (element, branch) in other.0 {
            self.put(element, branch);
        }
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let both = |(element, branch): (&Element, &Branch)| {
            let theirs = other.0.get(element)?;
            let below = branch.below.intersection(&theirs.below);
            let branch = Branch { member: branch.member && theirs.member, below };
            (!branch.is_empty()).then(|| (element.clone(), branch))
        };
        Self(self.0.iter().filter_map(both).collect())
    }

    /// Takes out what is in another set. What lies below a field that is taken out stays.
    pub fn subtract(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.0.retain(|element, branch| {
            if let Some(theirs) = other.0.get(element) {
                branch.member &= !theirs.member;
                branch.below.subtract(&theirs.below);
            }
            !branch.is_empty()
        });
    }

    /// Whether a path is in the set.
    #[must_use]
    pub fn has(&self, path: &[Element]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        let Some(branch) = self.0.get(first) else { return false };
        if rest.is_empty() { branch.member } else { branch.below.has(rest) }
    }

    /// Calls with every path in the set, in order.
    pub fn each_path(&self, each: &mut impl FnMut(&[Element])) {
        self.walk(&mut Vec::new(), each);
    }

    fn walk(&self, path: &mut Vec<Element>, each: &mut impl FnMut(&[Element])) {
        for (element, branch) in &self.0 {
            path.push(element.clone());
            if branch.member {
                each(path);
            }
            branch.below.walk(path, each);
            path.pop();
        }
    }

    /// The set with every declared field in it that something is in below of. Owners of a part share in the field that
    /// holds it, or removing their last part would leave the field behind.
    #[must_use]
    pub fn with_holders(mut self, schema: &'static Schema) -> Self {
        self.hold(Some(schema));
        self
    }

    fn hold(&mut self, schema: Option<&'static Schema>) {
        let form = schema.map(form);
        for (element, branch) in &mut self.0 {
            let inner = form.as_ref().and_then(|form| form.inner(element));
            let declared = matches!((&form, element), (Some(Form::Record(_)), Element::Field(_)));
            branch.member |= declared && inner.is_some() && !branch.below.is_empty();
            branch.below.hold(inner);
        }
    }

    /// The set as it fits a schema: what lies below something that is compared as a whole stands for the whole.
    #[must_use]
    pub fn fitted(mut self, schema: &'static Schema) -> Self {
        self.fit(schema);
        self
    }

    fn fit(&mut self, schema: &'static Schema) {
        let form = form(schema);
        for (element, branch) in &mut self.0 {
            let Some(inner) = form.inner(element) else { continue };
            if matches!(super::form::form(inner), Form::Leaf) {
                *branch = Branch::leaf();
            } else {
                branch.below.fit(inner);
            }
        }
    }
}

impl FromIterator<(Element, Branch)> for Set {
    fn from_iter<T: IntoIterator<Item = (Element, Branch)>>(branches: T) -> Self {
        Self(branches.into_iter().filter(|(_, branch)| !branch.is_empty()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields_v1::{parse, print};
    use super::*;
    use crate::sample::KIND_INFO;

    fn set(text: &str) -> Set {
        parse(text).expect(text)
    }

    #[test]
    fn unites_intersects_and_subtracts() {
        let a = r#"{"f:a":{".":{},"f:b":{}},"f:c":{}}"#;
        let b = r#"{"f:a":{"f:b":{},"f:d":{}},"f:c":{}}"#;
        let mut both = set(a);
        both.unite(set(b));
        assert_eq!(print(&both), r#"{"f:a":{".":{},"f:b":{},"f:d":{}},"f:c":{}}"#);
        assert_eq!(print(&set(a).intersection(&set(b))), r#"{"f:a":{"f:b":{}},"f:c":{}}"#);
        let mut less = set(a);
        less.subtract(&set(b));
        assert_eq!(print(&less), r#"{"f:a":{}}"#);
        less.subtract(&set(a));
        assert!(less.is_empty());
    }

    #[test]
    fn subtracting_a_field_leaves_what_is_below() {
        let mut all = set(r#"{"f:a":{".":{},"f:b":{}}}"#);
        all.subtract(&set(r#"{"f:a":{}}"#));
        assert_eq!(print(&all), r#"{"f:a":{"f:b":{}}}"#);
    }

    #[test]
    fn knows_its_paths() {
        let all = set(r#"{"f:a":{".":{},"k:{\"n\":\"x\"}":{"f:b":{}}},"f:c":{}}"#);
        let mut paths = Vec::new();
        all.each_path(&mut |path| {
            assert!(all.has(path));
            paths.push(path.iter().map(ToString::to_string).collect::<String>());
        });
        assert_eq!(paths, [".a", r#".a[n="x"].b"#, ".c"]);
        assert!(!all.has(&[]));
        assert!(!all.has(&[Element::field("a"), Element::field("b")]));
    }

    #[test]
    fn holders_are_declared_fields_only() {
        let labels = r#"{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:items":{"k:{\"name\":\"x\"}":{"f:labels":{"f:b":{}}}}}}"#;
        assert_eq!(
            print(&set(labels).with_holders(KIND_INFO.schema)),
            r#"{"f:metadata":{".":{},"f:labels":{".":{},"f:a":{}}},"f:spec":{".":{},"f:items":{".":{},"k:{\"name\":\"x\"}":{"f:labels":{".":{},"f:b":{}}}}}}"#
        );
    }

    #[test]
    fn parts_of_opaque_values_stand_for_the_whole() {
        let granular = r#"{"f:spec":{"f:items":{"k:{\"name\":\"x\"}":{"f:data":{"f:data":{"f:ca.crt":{}}},"f:name":{}}},"f:unknown":{"f:x":{}}}}"#;
        assert_eq!(
            print(&set(granular).fitted(KIND_INFO.schema)),
            r#"{"f:spec":{"f:items":{"k:{\"name\":\"x\"}":{"f:data":{},"f:name":{}}},"f:unknown":{"f:x":{}}}}"#
        );
    }
}
