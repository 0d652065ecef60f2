//! Where a figure is shown.

/// A document of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doc {
    /// Of something that has ended. Names of counters do without `_total`.
    Report,
    /// Of something that goes on.
    State,
}

/// A place where a figure is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A field of a document, and a row of a table that is made of it.
    Field(Field),
    /// A field `NAME_per_second` of a state: by how much a counter grows.
    Rate,
    /// A metric of this name.
    Metric(&'static str),
}

/// A field of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The document.
    pub doc: Doc,
    /// The object in it that has the field. Empty: the document itself.
    pub group: &'static str,
    /// Its name there. Empty: that of the figure.
    pub name: &'static str,
    /// The title of the table in which people see it. Empty: they do not.
    pub table: &'static str,
    /// The name of the row in the table. Empty: as the field.
    pub label: &'static str,
}

const fn field(doc: Doc, table: &'static str) -> View {
    View::Field(Field { doc, group: "", name: "", table, label: "" })
}

/// A field of a state that no table has.
pub const FIELD: View = field(Doc::State, "");

/// A field of a report, with a row of one of its tables.
#[must_use]
pub const fn report(table: &'static str) -> View {
    field(Doc::Report, table)
}

/// A field of a state, with a row of one of its tables.
#[must_use]
pub const fn state(table: &'static str) -> View {
    field(Doc::State, table)
}

/// A metric of this name.
#[must_use]
pub const fn metric(name: &'static str) -> View {
    View::Metric(name)
}

impl View {
    /// The same field under another name than the figure's.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Self {
        match self {
            Self::Field(field) => Self::Field(Field { name, ..field }),
            other => other,
        }
    }

    /// The same field in an object of this name.
    #[must_use]
    pub const fn within(self, group: &'static str) -> Self {
        match self {
            Self::Field(field) => Self::Field(Field { group, ..field }),
            other => other,
        }
    }

    /// The same field with a row of this name.
    #[must_use]
    pub const fn row(self, label: &'static str) -> Self {
        match self {
            Self::Field(field) => Self::Field(Field { label, ..field }),
            other => other,
        }
    }
}
