//! Builders: methods that set one field of options and return them, so that options are made in one
//! expression also where their struct cannot be written out.

/// Declares a method for each field. An optional field takes a value or an `Option`.
#[doc(hidden)]
#[macro_export]
macro_rules! builders {
    ($($with:ident => $field:ident: $type:ty,)*) => {$(
        #[doc = concat!(
            "Returns the options with another [`", stringify!($field),
            "`](field@Self::", stringify!($field), ")."
        )]
        #[must_use]
        pub fn $with(mut self, $field: $type) -> Self {
            self.$field = $field.into();
            self
        }
    )*};
}
