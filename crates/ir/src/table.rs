//! Expands tables of ops.
//!
//! A dialect passes its rows to [`define_ops!`](crate::define_ops). The rows of tile IR are in a
//! macro with a callback parameter, so that several macros can expand them.

/// Creates the enum of the ops with their attributes, and the plain data of the rows, from the rows
/// of a table. Also creates the text form of the attributes, and a visitor with a method for each
/// op.
///
/// A row is `docs Variant mnemonic (operands) [optional operands] *variadic {attribute: Type}
/// regions N Effect Family Waiting MemoryAccess AsyncPhase;`.
#[macro_export]
macro_rules! define_ops {
    ($op:ident $ops:ident $visitor:ident $visit:ident;
     $($(#[doc = $doc:literal])*
       $variant:ident $method:ident ($($operand:ident),*) [$($optional:ident),*] $(*$variadic:ident)?
       {$($attribute:ident: $attribute_ty:ty),*} regions $regions:tt $effect:ident $family:ident $waiting:ident
       $memory:ident $phase:ident;)*) => {
        /// An operation with its attributes. The instruction has operands, results and regions.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $op {
            $($(#[doc = $doc])* $variant {
                $(#[doc = concat!("The attribute `", stringify!($attribute), "`.")] $attribute: $attribute_ty,)*
            },)*
        }

        /// Every row, in the order of the table.
        pub const $ops: &[$crate::OpInfo] = &[$($crate::OpInfo {
            name: stringify!($method),
            docs: &[$($doc,)*],
            operands: &[$(stringify!($operand),)*],
            optional: &[$(stringify!($optional),)*],
            variadic: $crate::define_ops!(@variadic $($variadic)?),
            attributes: &[$((stringify!($attribute), stringify!($attribute_ty)),)*],
            regions: $regions,
            effect: $crate::Effect::$effect,
            family: $crate::OpFamily::$family,
            waiting: $crate::Waiting::$waiting,
            memory: $crate::MemoryAccess::$memory,
            phase: $crate::AsyncPhase::$phase,
        },)*];

        const _: () = {
            #[derive(Clone, Copy)]
            enum Row { $($variant,)* }

            impl $op {
                /// Returns the row of the op.
                pub fn info(&self) -> &'static $crate::OpInfo {
                    match self { $($op::$variant { .. } => &$ops[Row::$variant as usize],)* }
                }
            }
        };

        impl $op {
            /// Calls `each` with the name and the text form of each attribute.
            pub fn print_attributes(&self, mut each: impl FnMut(&'static str, &str)) {
                let mut text = String::new();
                match self { $($op::$variant { $($attribute),* } => {
                    $(text.clear();
                      $crate::Attribute::print($attribute, &mut text);
                      each(stringify!($attribute), &text);)*
                })* }
                let _ = &mut text;
                let _ = &mut each;
            }

            /// Returns the op with this mnemonic, if there is one. `Err` names the missing or
            /// malformed attribute.
            pub(crate) fn parse_row(
                name: &str, attributes: &$crate::AttributeText<'_>,
            ) -> Option<Result<Self, &'static str>> {
                $(if name == stringify!($method) {
                    $(let text = attributes(stringify!($attribute));
                      let Some($attribute) = text.and_then(<$attribute_ty as $crate::Attribute>::parse) else {
                        return Some(Err(stringify!($attribute)));
                    };)*
                    return Some(Ok($op::$variant { $($attribute),* }));
                })*
                let _ = attributes;
                None
            }
        }

        /// One method for each op, with named operands. rustc therefore rejects a back end that
        /// lacks an op.
        pub trait $visitor {
            /// The result of each method.
            type Output;
            $($(#[doc = $doc])*
            #[expect(clippy::allow_attributes, reason = "which rows need the next line is the table's business")]
            #[allow(clippy::too_many_arguments, clippy::ptr_arg, reason = "they are the row's operands and attributes")]
            fn $method(
                &mut self, inst: $crate::Inst $(, $operand: $crate::Value)*
                $(, $optional: Option<$crate::Value>)* $(, $variadic: &[$crate::Value])?
                $(, $attribute: &$attribute_ty)*
            ) -> Self::Output;)*
        }

        /// Calls the visitor's method for an op with these operands.
        ///
        /// The operands must be those that the row lists, which the verifier guarantees.
        pub fn $visit<V: $visitor + ?Sized>(
            op: &$op, inst: $crate::Inst, operands: &[$crate::Value], visitor: &mut V,
        ) -> V::Output {
            match op { $($op::$variant { $($attribute),* } => {
                let mut rest = operands.iter();
                $(let $operand = *rest.next().expect("the verifier checks the number of operands");)*
                $(let $optional = rest.next().copied();)*
                $(let $variadic = rest.as_slice();)?
                let _ = &mut rest;
                visitor.$method(inst $(, $operand)* $(, $optional)* $(, $variadic)? $(, $attribute)*)
            })* }
        }
    };
    (@variadic) => { None };
    (@variadic $name:ident) => { Some(stringify!($name)) };
}
