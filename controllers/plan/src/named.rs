//! Enums whose values have a recorded name: steps and sides of flows.
//!
//! The name is what is stored in a status. It never changes, whatever the variant is called in Rust.

use std::fmt::Debug;

/// An enum without data whose values have stable names.
pub trait Named: Copy + Debug + Ord + 'static {
    /// All values, in the order of their declaration.
    const ALL: &'static [Self];

    /// The recorded name.
    fn name(self) -> &'static str;

    /// The value of a recorded name; `None` where no value has that name.
    #[must_use]
    fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.name() == name)
    }
}

/// Declares an enum that implements [`Named`]. The recorded name is that of the variant, unless `= "text"` follows it.
#[macro_export]
macro_rules! named_enum {
    (@name $variant:ident) => { stringify!($variant) };
    (@name $variant:ident $text:literal) => { $text };
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident $(= $text:literal)?),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name {
            $($(#[$variant_meta])* $variant),+
        }

        impl $crate::named::Named for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $crate::named_enum!(@name $variant $($text)?)),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::named::Named::name(*self))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    named_enum! {
        enum Color {
            Red,
            Green = "green",
        }
    }

    #[test]
    fn names_are_those_of_variants_unless_another_one_is_given() {
        assert_eq!(Color::ALL.iter().map(|color| color.name()).collect::<Vec<_>>(), ["Red", "green"]);
        assert_eq!(Color::parse("green"), Some(Color::Green));
        assert_eq!(Color::parse("Green"), None);
        assert_eq!(Color::Red.to_string(), "Red");
    }
}
