//! The table of options: what one row of it is, and what is made of all rows.
//!
//! A row is the option's sentence, its field, the type and the kind of its value, and what is shown of it:
//!
//! ```text
//! /// How many operations of one caller may run at once.
//! max_open: usize = count(&limits::MAX_OPEN), default Idempotency::MAX_OPEN;
//! ```
//!
//! `default` is followed by the value that counts where the file is silent; `example` and `required` by one
//! as it is written, where no other counts or where the operator has to choose; `list` by the default of a
//! list. `field as "name"` is for a field with another name than the option, and
//! `, at_restart` at the end for an option that a running gateway does not change.

use super::{
    options::{HeadOptions, RouteOptions},
    process::{EncryptionOptions, JwtOptions, ProcessOptions, TlsOptions, TokenOptions},
    sinks::{RelayOptions, SinkOptions},
};

/// An option, as the reference and the template of `onceward init` describe it.
pub(crate) struct Described {
    pub(crate) name: &'static str,
    /// Its sentences, line by line.
    pub(crate) text: &'static [&'static str],
    pub(crate) values: String,
    pub(crate) shown: Shown,
    pub(crate) needs_restart: bool,
}

/// What a file shows of an option, as it is written there.
pub(crate) enum Shown {
    /// What counts where the file is silent.
    Default(String),
    /// There is no default.
    Example(&'static str),
    /// The same, and the operator has to choose.
    Required(&'static str),
}

/// The options below one heading.
pub(crate) type Group = (&'static str, Vec<Described>);

/// All options, in the order of a file.
pub(crate) struct Reference {
    /// Above the first section.
    pub(crate) process: Vec<Group>,
    /// Each has a section of its own, which is the first word of its heading.
    pub(crate) sections: Vec<Group>,
    /// Below `[[route]]` alone.
    pub(crate) head: Vec<Group>,
    /// Below `[[route]]` and `[defaults]`.
    pub(crate) routes: Vec<Group>,
}

impl Reference {
    pub(crate) fn of_all_options() -> Self {
        let sections = [
            TlsOptions::described(),
            JwtOptions::described(),
            EncryptionOptions::described(),
            TokenOptions::described(),
            RelayOptions::described(),
            SinkOptions::described(),
        ];
        Self {
            process: ProcessOptions::described(),
            sections: sections.into_iter().flatten().collect(),
            head: HeadOptions::described(),
            routes: RouteOptions::described(),
        }
    }
}

/// Makes a struct of settings, what reads and merges them, and their descriptions.
macro_rules! settings {
    (
        $(#[$about:meta])* $Settings:ident;
        $($heading:literal {$(
            $(#[doc = $doc:literal])*
            $field:ident $(as $name:literal)?: $type:ty = $kind:expr, $how:ident $shown:expr $(, $restart:ident)?;
        )*})*
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $Settings {$($(
            $(#[doc = $doc])*
            pub(crate) $field: $crate::config::schema::table::setting!($how $type),
        )*)*}

        #[allow(dead_code, reason = "only settings of routes have defaults in the file")]
        impl $Settings {
            pub(crate) fn read(reader: &mut $crate::config::parse::reader::Reader<'_>) -> Self {
                use $crate::config::schema::table::name;
                Self {$($($field: $kind.read(reader, name!($field $($name)?)),)*)*}
            }

            /// What counts: this, then the defaults.
            pub(crate) fn or(&self, defaults: &Self) -> Self {
                Self {$($($field: self.$field.or(&defaults.$field),)*)*}
            }

            pub(crate) fn described() -> Vec<$crate::config::schema::table::Group> {
                use $crate::config::schema::table::{Described, name, shown};
                vec![$(($heading, vec![$(Described {
                    name: name!($field $($name)?),
                    text: &[$($doc),*],
                    values: $kind.values,
                    shown: shown!($how $kind, $shown),
                    needs_restart: !["", $(stringify!($restart))?].concat().is_empty(),
                }),*])),*]
            }
        }
    };
}

/// The same, and what becomes of the settings: what `fitted` options make together, and each `plain` option
/// as it was said.
macro_rules! options {
    (
        $(#[$about:meta])* settings $Settings:ident;
        $(#[$meaning:meta])* becomes $Resolved:ident with $Fitted:ident {$(
            $(#[doc = $of_part:literal])* $part:ident: $part_type:ty,
        )*}
        fitted {$($fitted:tt)*}
        plain {$($heading:literal {$(
            $(#[doc = $doc:literal])*
            $field:ident $(as $name:literal)?: $type:ty = $kind:expr, $how:ident $shown:expr $(, $restart:ident)?;
        )*})*}
        $(fitted {$($more:tt)*})?
    ) => {
        $crate::config::schema::table::settings! {
            $(#[$about])* $Settings;
            $($fitted)*
            $($heading {$(
                $(#[doc = $doc])*
                $field $(as $name)?: $type = $kind, $how $shown $(, $restart)?;
            )*})*
            $($($more)*)?
        }

        $(#[$meaning])*
        #[derive(Clone, Debug)]
        pub(crate) struct $Resolved {
            $($(#[doc = $of_part])* pub(crate) $part: $part_type,)*
            $($($(#[doc = $doc])* pub(crate) $field: $crate::config::schema::table::resolved!($how $type),)*)*
        }

        /// What several options make together.
        pub(crate) struct $Fitted {
            $(pub(crate) $part: $part_type,)*
        }

        impl $Settings {
            /// `None`: an option is wrong, which was reported when it was read.
            pub(crate) fn complete(&self, fitted: $Fitted) -> Option<$Resolved> {
                Some($Resolved {
                    $($part: fitted.$part,)*
                    $($($field: $crate::config::schema::table::resolve!($how self.$field, $shown),)*)*
                })
            }
        }

        impl $Resolved {
            /// The plain options in the words of the file.
            pub(crate) fn plain(&self) -> serde_json::Map<String, serde_json::Value> {
                use $crate::config::schema::table::{in_words, name};
                let mut words = serde_json::Map::new();
                $($(words.insert(name!($field $($name)?).to_owned(), in_words!($how $kind, self.$field));)*)*
                words
            }
        }
    };
}

macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:literal) => {
        $name
    };
}

macro_rules! setting {
    (list $type:ty) => { $crate::config::parse::reader::Setting<Vec<$crate::config::parse::reader::Placed<$type>>> };
    ($how:ident $type:ty) => { $crate::config::parse::reader::Setting<$type> };
}

macro_rules! resolved {
    (list $type:ty) => { Vec<$type> };
    (example $type:ty) => { Option<$type> };
    (default $type:ty) => { $type };
}

macro_rules! resolve {
    (list $setting:expr, $shown:expr) => {
        $setting.values()?
    };
    (example $setting:expr, $shown:expr) => {
        $setting.optional()?
    };
    (default $setting:expr, $default:expr) => {
        $setting.value_or($default)?
    };
}

macro_rules! shown {
    (list $kind:expr, $shown:expr) => {
        $crate::config::schema::table::Shown::Default($shown.to_owned())
    };
    (default $kind:expr, $default:expr) => {
        $crate::config::schema::table::Shown::Default($kind.shown(&$default).to_string())
    };
    (example $kind:expr, $shown:expr) => {
        $crate::config::schema::table::Shown::Example($shown)
    };
    (required $kind:expr, $shown:expr) => {
        $crate::config::schema::table::Shown::Required($shown)
    };
}

macro_rules! in_words {
    (example $kind:expr, $value:expr) => {
        $value.as_ref().map(|value| $kind.shown(value)).into()
    };
    ($how:ident $kind:expr, $value:expr) => {
        $kind.shown(&$value)
    };
}

pub(crate) use {in_words, name, options, resolve, resolved, setting, settings, shown};
