//! JSON Patch (RFC 6902) over trees that open only where a pointer enters them: a patch of one entry of a state of
//! megabytes leaves all the others as the text they were.

use bytes::Bytes;
use serde::Deserialize;

use super::{
    decode::{self, decode_opaque},
    node::{Key, Node},
    pointer::{Effort, Malformed, Pointer, find, index},
    raw::Raw,
};
use crate::field::shortened;

/// More operations than this are refused, as kube-apiserver does.
pub const MAX_OPERATIONS: usize = 10_000;

/// Two values of a `test` that are spelled differently are read to be compared, up to so many bytes together.
const MAX_COMPARED: usize = 256 << 10;

/// The patch cannot be read or applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The patch document is not a JSON Patch.
    #[error("{0}")]
    Syntax(String),
    /// See [`MAX_OPERATIONS`].
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooMany(usize),
    /// Walking, comparing and copying would take too long.
    #[error("the patch asks for too much work; split it, or replace the object")]
    TooCostly,
    /// `copy` would make the document grow beyond the limit of bytes.
    #[error("the copy operations of the patch add more than {0} bytes")]
    TooMuchCopied(usize),
    /// A path does not exist, or a `test` did not hold.
    #[error("operation {at}: {why}")]
    Apply {
        /// The operation, from zero.
        at: usize,
        /// What did not work.
        why: String,
    },
}

/// A JSON Patch (RFC 6902) that has been read: operations in order.
#[derive(Debug)]
pub struct Patch(Vec<Operation>);

#[derive(Debug)]
enum Operation {
    Add(Pointer, Raw),
    Remove(Pointer),
    Replace(Pointer, Raw),
    Move(Pointer, Pointer),
    Copy(Pointer, Pointer),
    Test(Pointer, Raw),
}

/// The members of an operation that are not payload.
#[derive(Deserialize)]
struct Head {
    op: String,
    path: String,
    from: Option<String>,
}

impl Patch {
    /// Reads a patch document. Unknown members of an operation are passed over, as the RFC says.
    ///
    /// # Errors
    /// [`Error::Syntax`], [`Error::TooMany`], and [`Error::Apply`] for an operation that can never apply.
    pub fn parse(bytes: &Bytes) -> Result<Self, Error> {
        let document = decode_opaque(bytes).map_err(|e: decode::Error| Error::Syntax(e.to_string()))?;
        let operations = document
            .elements()
            .ok_or_else(|| Error::Syntax("a JSON Patch is an array of operations".to_owned()))?;
        // Counted first: millions of operations are not to be held to be refused.
        let count = document.count();
        if count > MAX_OPERATIONS {
            return Err(Error::TooMany(count));
        }
        operations.enumerate().map(|(at, raw)| operation(at, &raw)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether anything may be there twice afterwards.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.0.iter().any(|operation| matches!(operation, Operation::Copy(..)))
    }

    /// Whether every place that the operations name lies in this member of the document.
    #[must_use]
    pub fn is_within(&self, member: &str) -> bool {
        let inside = |pointer: &Pointer| {
            let tokens = pointer.tokens();
            tokens.len() > 1 && tokens[0] == member
        };
        self.0.iter().all(|operation| match operation {
            Operation::Add(path, _)
            | Operation::Remove(path)
            | Operation::Replace(path, _)
            | Operation::Test(path, _) => inside(path),
            Operation::Move(from, path) | Operation::Copy(from, path) => inside(from) && inside(path),
        })
    }

    /// Applies the operations in order. `copy_limit`: bytes that copies may add in sum.
    ///
    /// # Errors
    /// [`Error::Apply`], [`Error::TooMuchCopied`]; the tree is then to be thrown away.
    pub fn apply(&self, root: &mut Node, copy_limit: usize) -> Result<(), Error> {
        let (mut copied, mut effort) = (0, Effort::new(Effort::ENOUGH));
        for (at, operation) in self.0.iter().enumerate() {
            if let Operation::Copy(from, _) = operation {
                copied += find(root, &from.tokens(), &mut effort).map_or(0, |node| node.to_raw().len());
                if copied > copy_limit {
                    return Err(Error::TooMuchCopied(copy_limit));
                }
            }
            let applied = operation.apply(root, &mut effort);
            if effort.is_spent() {
                return Err(Error::TooCostly);
            }
            applied.map_err(|why| Error::Apply { at, why })?;
        }
        Ok(())
    }
}

fn operation(at: usize, raw: &Raw) -> Result<Operation, Error> {
    if raw.first() != b'{' {
        return Err(Error::Syntax(format!("operation {at}: must be an object")));
    }
    // As clients know it, an operation is only looked at when it is applied.
    let syntax = |why: String| Error::Apply { at, why };
    // The parser's own words could quote payload.
    let head: Head = serde_json::from_slice(raw.bytes())
        .map_err(|_| syntax("must be an object with the strings \"op\" and \"path\"".to_owned()))?;
    let pointer = |text: &str| Pointer::parse(text).map_err(|e: Malformed| syntax(e.to_string()));
    let path = pointer(&head.path)?;
    let from = || match &head.from {
        Some(from) => pointer(from),
        None => Err(syntax(format!("{:?} needs \"from\"", head.op))),
    };
    let value = || {
        let members = raw.members().into_iter().flatten();
        let found = members.filter(|(key, _)| key.bytes() == &b"\"value\""[..]).last();
        found.map(|(_, value)| value).ok_or_else(|| syntax(format!("{:?} needs \"value\"", head.op)))
    };
    Ok(match head.op.as_str() {
        "add" => Operation::Add(path, value()?),
        "remove" => Operation::Remove(path),
        "replace" => Operation::Replace(path, value()?),
        "move" => Operation::Move(from()?, path),
        "copy" => Operation::Copy(from()?, path),
        "test" => Operation::Test(path, value()?),
        other => {
            let other = shortened(other.to_owned(), MAX_SHOWN);
            return Err(syntax(format!("{other:?} is not add, remove, replace, move, copy or test")));
        }
    })
}

type Applied<T = ()> = Result<T, String>;

impl Operation {
    fn apply(&self, root: &mut Node, effort: &mut Effort) -> Applied {
        match self {
            Self::Add(path, value) => add(root, path, Node::Raw(value.clone()), effort),
            Self::Remove(path) => remove(root, path, effort).map(drop),
            Self::Replace(path, value) => {
                *place(root, path, effort)? = Node::Raw(value.clone());
                Ok(())
            }
            Self::Move(from, path) if from == path => place(root, from, effort).map(drop),
            Self::Move(from, path) if from.holds(path) => {
                Err("a value cannot be moved into itself".to_owned())
            }
            Self::Move(from, path) => {
                let moved = remove(root, from, effort)?;
                add(root, path, moved, effort)
            }
            Self::Copy(from, path) => {
                let copied = place(root, from, effort)?.clone();
                add(root, path, copied, effort)
            }
            Self::Test(path, value) => {
                let found = place(root, path, effort)?.to_raw();
                let compared = found.len().saturating_add(value.len());
                effort.spend(compared.saturating_mul(8));
                if compared > MAX_COMPARED && found != *value {
                    effort.exhaust();
                }
                if !effort.is_spent() && same(&found, value) {
                    Ok(())
                } else {
                    Err(format!("test of {} failed", show(path)))
                }
            }
        }
    }
}

fn place<'a>(root: &'a mut Node, path: &Pointer, effort: &mut Effort) -> Applied<&'a mut Node> {
    find(root, &path.tokens(), effort).ok_or_else(|| format!("{} does not exist", show(path)))
}

fn add(root: &mut Node, path: &Pointer, value: Node, effort: &mut Effort) -> Applied {
    let Some((last, parents)) = path.split_last() else {
        *root = value;
        return Ok(());
    };
    let missing = || format!("{} does not exist", show_tokens(&parents));
    let parent = find(root, &parents, effort).ok_or_else(missing)?;
    effort.open(parent);
    match parent {
        Node::Object(_) => parent.set(Key::from(last), value),
        Node::Array(items) if last == "-" => items.push(value),
        Node::Array(items) => {
            let at = index(&last, items.len() + 1)
                .ok_or_else(|| format!("{} is no index of an array of {}", show(path), items.len()))?;
            // All behind it are moved.
            effort.spend((items.len() - at).saturating_mul(8));
            items.insert(at, value);
        }
        _ => return Err(format!("{} is neither object nor array", show_tokens(&parents))),
    }
    Ok(())
}

fn remove(root: &mut Node, path: &Pointer, effort: &mut Effort) -> Applied<Node> {
    let missing = || format!("{} does not exist", show(path));
    let (last, parents) = path.split_last().ok_or("the whole document cannot be removed")?;
    let parent = find(root, &parents, effort).ok_or_else(missing)?;
    effort.open(parent);
    match parent {
        Node::Array(items) => {
            let at = index(&last, items.len()).ok_or_else(missing)?;
            effort.spend((items.len() - at).saturating_mul(8));
            Ok(items.remove(at))
        }
        _ => parent.take(&last).ok_or_else(missing),
    }
}

/// Equality as the RFC has it: by value, not by spelling.
fn same(a: &Raw, b: &Raw) -> bool {
    let parse = |raw: &Raw| serde_json::from_slice::<serde_json::Value>(raw.bytes()).ok();
    a == b || matches!((parse(a), parse(b)), (Some(a), Some(b)) if equal(&a, &b))
}

fn equal(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (a, b) {
        (Number(a), Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Array(a), Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Object(a), Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

fn show(path: &Pointer) -> String {
    show_tokens(&path.tokens())
}

/// A path in messages is cut off there, in bytes.
const MAX_SHOWN: usize = 512;

fn show_tokens(tokens: &[String]) -> String {
    let tokens = tokens.iter().map(|t| format!("/{}", t.replace('~', "~0").replace('/', "~1")));
    format!("{:?}", shortened(tokens.collect(), MAX_SHOWN))
}

#[cfg(test)]
mod tests;
