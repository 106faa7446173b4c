//! How a table of C functions is declared: one line per function gives its type, its place in the table, a call that answers
//! `Absent` where the installed libraries lack it, and its signature as text for the comparison with the official headers.

/// The installed libraries do not have this symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the installed CANN libraries lack {0}")]
pub struct Absent(pub &'static str);

/// A function as declared here, in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The symbol.
    pub name: &'static str,
    /// Types of its parameters, in Rust's words.
    pub parameters: &'static [&'static str],
    /// Type of what it returns.
    pub returns: &'static str,
}

/// Declares the table `$table` of C functions.
macro_rules! declare_functions {
    (
        $(#[$table_doc:meta])*
        $table:ident {
            $( $(#[$doc:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) -> $returns:ty; )*
        }
    ) => {
        /// The type of each function, named as the function: for those who implement them.
        #[allow(non_camel_case_types)]
        pub mod pointer {
            // Not every header has types of its own.
            #[allow(unused_imports)]
            use super::*;
            $( $(#[$doc])* pub type $name = unsafe extern "C" fn($($type),*) -> $returns; )*
        }

        $(#[$table_doc])*
        #[allow(non_snake_case)]
        #[derive(Clone, Copy, Default)]
        pub struct $table {
            $( $name: Option<pointer::$name>, )*
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl $table {
            /// Everything declared in this table.
            pub const SIGNATURES: &[$crate::Signature] = &[
                $( $crate::Signature {
                    name: stringify!($name),
                    parameters: &[$(stringify!($type)),*],
                    returns: stringify!($returns),
                }, )*
            ];

            /// Looks every function up; what is not found stays absent.
            pub(crate) fn resolve(libraries: &$crate::load::Libraries) -> Self {
                Self {
                    $(
                        // SAFETY: a symbol of this name has this type: compared with the official headers.
                        $name: unsafe { libraries.symbol::<pointer::$name>(stringify!($name)) },
                    )*
                }
            }

            /// Names of the functions that were not found.
            pub fn absent(&self) -> Vec<&'static str> {
                [$( (stringify!($name), self.$name.is_none()) ),*]
                    .into_iter()
                    .filter_map(|(name, absent)| absent.then_some(name))
                    .collect()
            }

            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// `Absent` where the libraries lack the function; its own code is the value.
                /// # Safety
                /// Pointers and handles must be what the official documentation asks for.
                pub unsafe fn $name(&self, $($parameter: $type),*) -> Result<$returns, $crate::Absent> {
                    let function = self.$name.ok_or($crate::Absent(stringify!($name)))?;
                    // SAFETY: handed on to the caller.
                    Ok(unsafe { function($($parameter),*) })
                }
            )*
        }
    };
}

/// Declares C enumerations as types of their own, so that a value unknown to us is no undefined behaviour.
macro_rules! declare_enums {
    ( $( $(#[$doc:meta])* $type:ident { $( $name:ident = $value:expr, )* } )* ) => {
        $(
            $(#[$doc])*
            #[repr(transparent)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $type(pub i32);
            $( #[doc = concat!("`", stringify!($name), "`.")] pub const $name: $type = $type($value); )*
        )*

        /// All constants of enumerations with their values.
        pub const ENUM_VALUES: &[(&str, i64)] = &[
            $( $( (stringify!($name), $value), )* )*
        ];
    };
}

/// Declares C integer constants.
macro_rules! declare_numbers {
    ( $(#[$doc:meta])* $list:ident: $type:ty { $( $name:ident = $value:expr, )* } ) => {
        $( #[doc = concat!("`", stringify!($name), "`.")] pub const $name: $type = $value; )*

        $(#[$doc])*
        pub const $list: &[(&str, $type)] = &[ $( (stringify!($name), $name), )* ];
    };
}
