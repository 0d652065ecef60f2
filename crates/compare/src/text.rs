//! Tables as text: in columns for people, comma-separated for programs.

use serde_json::Value;

/// Spaces between two columns of a table.
pub(crate) const GAP: usize = 2;

/// Returns the lines of a table whose columns are `columns`, two spaces apart: the first `left` of
/// them flush left, the others flush right. No line ends in spaces.
///
/// # Panics
///
/// When the columns differ in length.
pub fn aligned(columns: &[Vec<String>], left: usize) -> Vec<String> {
    let width = |column: &Vec<String>| column.iter().map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = columns.iter().map(|column| width(column).unwrap_or(0)).collect();
    let line = |at: usize| {
        let cell = |(index, column): (usize, &Vec<String>)| match widths[index] {
            width if index < left => format!("{:<width$}", column[at]),
            width => format!("{:>width$}", column[at]),
        };
        let cells: Vec<String> = columns.iter().enumerate().map(cell).collect();
        cells.join(&" ".repeat(GAP)).trim_end().to_owned()
    };
    (0..columns.first().map_or(0, Vec::len)).map(line).collect()
}

/// Returns a paragraph in lines of at most `width` characters, if no word is longer.
pub(crate) fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is always one");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

/// Returns `rows`, cells with the names of their columns, as comma-separated lines below one line
/// of names; null is empty.
///
/// # Panics
///
/// When the rows differ in length.
pub fn csv(rows: impl IntoIterator<Item = Vec<(String, Value)>>) -> String {
    let mut text = String::new();
    let mut columns = None;
    for row in rows {
        let (names, cells): (Vec<_>, Vec<_>) =
            row.iter().map(|(name, value)| (quoted(name), quoted(&cell(value)))).unzip();
        if columns.is_none() {
            text += &(names.join(",") + "\n");
        }
        assert_eq!(*columns.get_or_insert(cells.len()), cells.len(), "columns of a row");
        text += &(cells.join(",") + "\n");
    }
    text
}

/// Returns a plain JSON value without quotes; nothing for null.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns a cell as it stands between commas (RFC 4180).
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let column = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let columns =
            [column(["name", "µ", ""]), column(["a", "10", "100"]), column(["b", "2", ""])];
        assert_eq!(aligned(&columns, 1), ["name    a  b", "µ      10  2", "      100"]);
    }

    #[test]
    fn prose_breaks_between_words() {
        assert_eq!(wrapped("a bc def", Some(4)), "a bc\ndef");
        assert_eq!(wrapped("abcdef g", Some(4)), "abcdef\ng");
        assert_eq!(wrapped("a bc def", None), "a bc def");
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let row =
            |text: Option<&str>| vec![("a".to_owned(), text.into()), ("b".to_owned(), 1.5.into())];
        assert_eq!(csv([row(Some("x, \"y\"")), row(None)]), "a,b\n\"x, \"\"y\"\"\",1.5\n,1.5\n");
        assert_eq!(csv([]), "");
        for text in ["x", "a,b", "\"", "\"\"", "two\nlines", "\r", " spaces ", "µ;\t'"] {
            let written = csv([row(Some(text))]);
            let mut reader = csv::Reader::from_reader(written.as_bytes());
            let read = reader.records().next().expect("a row").expect("whole");
            assert_eq!((&read[0], &read[1]), (text, "1.5"));
        }
    }
}
