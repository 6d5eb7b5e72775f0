//! Enumerations of which each variant has one word.

/// Declares such an enumeration: with its words, and with a list of all its variants.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them, in the order of this enumeration.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The word for it in stored trails, documents, lists, logs and metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
    };
}
pub(crate) use words;

use crate::Effect;

/// One of its variants has a time in it, so that its words are written out.
impl Effect {
    /// The word for it in configurations, documents and lists.
    ///
    /// ```
    /// assert_eq!(onceward_core::Effect::External.as_str(), "external");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transactional => "transactional",
            Self::External => "external",
            Self::Repeatable { .. } => "repeatable",
        }
    }

    /// Its tier in `docs/guarantees.md`: `T1` promises most.
    #[must_use]
    pub const fn tier(self) -> &'static str {
        match self {
            Self::Transactional => "T1",
            Self::Repeatable { .. } => "T2",
            Self::External => "T3",
        }
    }
}
