//! What an expression looks at, found without running it.

use std::collections::BTreeSet;

use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr, LiteralValue},
};

/// Which members of an object are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// These; none where the variable is not named at all.
    Named(BTreeSet<String>),
    /// All: the variable is used as a whole.
    All,
}

impl Default for Members {
    fn default() -> Self {
        Self::Named(BTreeSet::new())
    }
}

impl Members {
    /// Whether a member is looked at.
    #[must_use]
    pub fn has(&self, member: &str) -> bool {
        match self {
            Self::Named(members) => members.contains(member),
            Self::All => true,
        }
    }

    /// Whether anything but metadata is.
    #[must_use]
    pub fn beyond_metadata(&self) -> bool {
        match self {
            Self::Named(members) => {
                members.iter().any(|member| !matches!(member.as_str(), "metadata" | "kind" | "apiVersion"))
            }
            Self::All => true,
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, member: Option<&str>) {
        match (&mut *self, member) {
            (Self::Named(members), Some(member)) => {
                members.insert(member.to_owned());
            }
            _ => *self = Self::All,
        }
    }
}

/// What expressions look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedVariables {
    /// Of the new state.
    pub object: Members,
    /// Of the old state.
    pub old: Members,
    request: bool,
    /// How deep loops are nested.
    pub loops: u32,
}

impl UsedVariables {
    /// What one expression looks at, and how deep its loops are nested.
    #[must_use]
    pub fn of(expression: &IdedExpr) -> Self {
        let mut needs = Self::default();
        needs.visit(&expression.expr, 0);
        needs
    }

    /// What either of the two looks at, and the deeper nesting of loops.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        for (mine, theirs) in [(&mut self.object, &other.object), (&mut self.old, &other.old)] {
            match theirs {
                Members::All => *mine = Members::All,
                Members::Named(members) => members.iter().for_each(|member| mine.add_to(member)),
            }
        }
        self.request |= other.request;
        self.loops = self.loops.max(other.loops);
        self
    }

    /// Whether a variable is named.
    #[must_use]
    pub fn names(&self, variable: &str) -> bool {
        match variable {
            "object" => !self.object.is_empty(),
            "oldObject" => !self.old.is_empty(),
            _ => self.request,
        }
    }

    fn note(&mut self, variable: &str, member: Option<&str>) {
        match variable {
            "object" => self.object.add(member),
            "oldObject" => self.old.add(member),
            "request" => self.request = true,
            _ => {}
        }
    }

    fn visit(&mut self, expression: &Expr, depth: u32) {
        match expression {
            Expr::Ident(name) => self.note(name, None),
            Expr::Select(select) => match &select.operand.expr {
                Expr::Ident(name) => self.note(name, Some(&select.field)),
                operand => self.visit(operand, depth),
            },
            Expr::Call(call) => {
                // `object["spec"]` and `object.?spec`.
                if let [first, second] = call.args.as_slice()
                    && let (Expr::Ident(name), Expr::Literal(LiteralValue::String(member))) =
                        (&first.expr, &second.expr)
                    && matches!(call.func_name.as_str(), "_[_]" | "_?._" | "_[?_]")
                {
                    return self.note(name, Some(member.inner()));
                }
                for part in call.target.iter().map(AsRef::as_ref).chain(&call.args) {
                    self.visit(&part.expr, depth);
                }
            }
            Expr::Comprehension(each) => {
                self.loops = self.loops.max(depth + 1);
                self.visit(&each.iter_range.expr, depth);
                for part in [&each.accu_init, &each.loop_cond, &each.loop_step, &each.result] {
                    self.visit(&part.expr, depth + 1);
                }
            }
            Expr::List(list) => list.elements.iter().for_each(|part| self.visit(&part.expr, depth)),
            Expr::Map(map) => self.visit_entries(map.entries.iter().map(|entry| &entry.expr), depth),
            Expr::Struct(new) => self.visit_entries(new.entries.iter().map(|entry| &entry.expr), depth),
            Expr::Literal(_) | Expr::Unspecified => {}
        }
    }

    fn visit_entries<'a>(&mut self, entries: impl Iterator<Item = &'a EntryExpr>, depth: u32) {
        for entry in entries {
            match entry {
                EntryExpr::StructField(field) => self.visit(&field.value.expr, depth),
                EntryExpr::MapEntry(entry) => {
                    self.visit(&entry.key.expr, depth);
                    self.visit(&entry.value.expr, depth);
                }
            }
        }
    }
}

impl Members {
    fn add_to(&mut self, member: &str) {
        if let Self::Named(members) = self {
            members.insert(member.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(source: &str) -> UsedVariables {
        UsedVariables::of(cel::Env::stdlib().compile(source).expect("an expression").expression())
    }

    fn some(members: &[&str]) -> Members {
        Members::Named(members.iter().map(|member| (*member).to_owned()).collect())
    }

    #[test]
    fn tells_the_members_that_are_looked_at() {
        for (source, object, old) in [
            ("object.metadata.name == 'a'", some(&["metadata"]), some(&[])),
            ("has(object.spec.x) || object['status'] == 1", some(&["spec", "status"]), some(&[])),
            ("object.?metadata.orValue({}) == oldObject", some(&["metadata"]), Members::All),
            ("object.spec.l.all(x, x == oldObject.metadata.name)", some(&["spec"]), some(&["metadata"])),
            ("request.name == 'object'", some(&[]), some(&[])),
            ("size([object]) > 0 || {'a': oldObject.spec} == {}", Members::All, some(&["spec"])),
        ] {
            let needs = needs(source);
            assert_eq!((&needs.object, &needs.old), (&object, &old), "{source}");
        }
        assert!(needs("request.name == ''").names("request") && !needs("true").names("request"));
        assert!(!some(&["metadata"]).beyond_metadata() && some(&["spec"]).beyond_metadata());
    }

    #[test]
    fn tells_how_deep_loops_are_nested() {
        for (source, loops) in [
            ("true", 0),
            ("[1].all(x, x > 0) && [1].exists(x, x > 0)", 1),
            ("[1].map(x, x + 1).all(x, x > 0)", 1),
            ("[1].all(x, [2].all(y, [3].exists(z, x + y + z > 0)))", 3),
        ] {
            assert_eq!(needs(source).loops, loops, "{source}");
        }
    }
}
