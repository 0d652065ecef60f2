//! Declared figures as fields of documents and as rows of tables.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use zfold_figures::{Doc, Field, Figure, Figures, Unit};

use super::table::{Row, count, size, time};

/// Returns a number of a figure for people.
pub(crate) fn formatted(unit: Unit, number: u64) -> String {
    match unit {
        Unit::Count | Unit::Pages => count(number),
        Unit::Bytes => size(number),
        Unit::Nanoseconds => time(number),
        Unit::Microseconds => time(number.saturating_mul(1000)),
    }
}

/// Returns the figures that a table of a document shows.
pub(crate) fn in_table<F: Figures>(
    doc: Doc,
    table: &str,
) -> impl Iterator<Item = (Field, &'static Figure<F>)> {
    F::ALL.iter().filter_map(move |figure| {
        let field = figure.field(doc)?;
        (field.table == table).then_some((field, figure))
    })
}

/// Returns the rows of a document's table, with values as `format` makes them.
pub(crate) fn rows<F: Figures>(
    doc: Doc,
    table: &str,
    format: impl Fn(&'static Figure<F>) -> String,
) -> Vec<Row> {
    in_table(doc, table)
        .map(|(field, figure)| (field.label, format(figure), figure.meaning))
        .collect()
}

/// Returns the rows of a table of a document, with numbers as people read them.
pub(crate) fn all_of<F: Figures>(table: &str, doc: Doc, of: &F) -> Vec<Row> {
    rows::<F>(doc, table, |figure| formatted(figure.unit, (figure.of)(of)))
}

/// Figures that there may not be, as an object of a state or a report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Known<F>(pub(crate) F);

impl<F: Figures> serde::Serialize for Known<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write(&self.0, Doc::State, to)
    }
}

impl<'de, F: Figures> serde::Deserialize<'de> for Known<F> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(Doc::State, from).map(Self)
    }
}

/// Returns figures as fields of a report.
pub(crate) fn in_report(of: &impl Figures) -> serde_json::Value {
    write(of, Doc::Report, serde_json::value::Serializer).expect("numbers by their names")
}

/// Figures as fields of a state: `#[serde(flatten, with = "in_state")]`.
pub(crate) mod in_state {
    use super::{Deserializer, Doc, Figures, Serializer, read, write};

    pub(crate) fn serialize<F: Figures, S: Serializer>(of: &F, to: S) -> Result<S::Ok, S::Error> {
        write(of, Doc::State, to)
    }

    pub(crate) fn deserialize<'de, F: Figures, D: Deserializer<'de>>(
        from: D,
    ) -> Result<F, D::Error> {
        read(Doc::State, from)
    }
}

/// Writes figures by their names, those of a group in an object of its name.
fn write<F: Figures, S: Serializer>(of: &F, doc: Doc, to: S) -> Result<S::Ok, S::Error> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    let mut map = to.serialize_map(None)?;
    for figure in F::ALL {
        let Some(Field { group, name, .. }) = figure.field(doc) else { continue };
        let number = (figure.of)(of);
        match group {
            "" => map.serialize_entry(name, &number)?,
            _ => drop(groups.entry(group).or_default().insert(name, number)),
        }
    }
    groups.iter().try_for_each(|(group, fields)| map.serialize_entry(group, fields))?;
    map.end()
}

/// Reads figures; figures that another version lacks are 0.
fn read<'de, F: Figures, D: Deserializer<'de>>(doc: Doc, from: D) -> Result<F, D::Error> {
    from.deserialize_map(Fields(doc, PhantomData))
}

struct Fields<F>(Doc, PhantomData<F>);

impl<F: Figures> Fields<F> {
    /// Returns the figure of such a field.
    fn find(&self, is: impl Fn(Field) -> bool) -> Option<&'static Figure<F>> {
        F::ALL.iter().find(|figure| figure.field(self.0).is_some_and(&is))
    }

    fn in_group(&self, group: &str, name: &str) -> Option<&'static Figure<F>> {
        self.find(|known| known.group == group && known.name == name)
    }
}

impl<'de, F: Figures> Visitor<'de> for Fields<F> {
    type Value = F;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<F, A::Error> {
        let mut figures = F::default();
        while let Some(name) = map.next_key::<String>()? {
            if let Some(figure) = self.in_group("", &name) {
                (figure.set)(&mut figures, map.next_value()?);
            } else if self.find(|known| known.group == name).is_some() {
                for (part, number) in map.next_value::<BTreeMap<String, u64>>()? {
                    if let Some(figure) = self.in_group(&name, &part) {
                        (figure.set)(&mut figures, number);
                    }
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use zfold_figures::{FIELD, figures, report, state};

    use super::*;

    figures! {
        /// What a test has.
        struct Held;
        /// What it counts.
        struct Counters;

        gauge held_bytes: Bytes, "what it holds", [state("t").row("held")];
        counter loads_total: Count, "loads", [state("t").row("  loads"), report("u")];
        counter spared_total: Count, "not shown", [];
        gauge inside: Count, "in a group", [FIELD.within("g")];
    }

    #[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
    struct State {
        name: String,
        #[serde(flatten, with = "in_state")]
        held: Held,
    }

    #[test]
    fn a_document_has_figures_by_their_names_and_missing_ones_are_zero() {
        let counters = Counters::default();
        counters.loads_total.add(7);
        let held = Held { held_bytes: 2048, inside: 5, ..counters.read() };
        let state = State { name: "a".to_owned(), held };
        let text = serde_json::to_string(&state).expect("JSON");
        assert_eq!(text, r#"{"name":"a","held_bytes":2048,"loads_total":7,"g":{"inside":5}}"#);
        assert_eq!(serde_json::from_str::<State>(&text).expect("JSON"), state);
        let other = r#"{"name": "a", "later": [1], "loads_total": 7, "g": {"later": 1}}"#;
        let read: State = serde_json::from_str(other).expect("JSON");
        assert_eq!((read.held.held_bytes, read.held.loads_total), (0, 7));
    }

    #[test]
    fn a_table_has_its_figures_in_order() {
        let held = Held { held_bytes: 2048, ..Held::default() };
        let rows = all_of("t", Doc::State, &held);
        let expected = [
            ("held", "2.00 KiB".to_owned(), "what it holds"),
            ("  loads", "0".to_owned(), "loads"),
        ];
        assert_eq!(rows, expected);
    }
}
