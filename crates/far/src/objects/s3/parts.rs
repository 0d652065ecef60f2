//! The list of the parts of an object that is being sent, as it lies beside the object.
//!
//! ```text
//!   zfold parts 1
//!   the upload's id
//!   SHA-256 of part 0 in hex, and the tag that the server gave it
//!   -                                                               part 1 is not there yet
//! ```
//!
//! - J1: a line records what the server acknowledged under that number in that upload. What it
//!   holds there is never anything else without another tag, so completing with the tags of a list
//!   that is out of date is refused by the server and never makes a wrong object.

use crate::hex::hex;

/// The first line of the list.
const MAGIC: &str = "zfold parts 1";

/// The most parts of an object of S3.
pub(super) const PARTS_MAX: usize = 10_000;

/// Longest list in bytes: tags may have 143 each, and that of S3 has 34.
pub(super) const LIST_MAX: usize = 2 << 20;

/// A SHA-256.
pub(super) type Sum = [u8; 32];

/// A part that the server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) sum: Sum,
    /// The server's tag for these bytes.
    pub(super) tag: String,
}

/// The parts of one upload, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) upload: String,
    parts: Vec<Option<Part>>,
}

impl Parts {
    /// Returns the list of an upload of which nothing was sent.
    pub(super) fn new(upload: String) -> Self {
        Self { upload, parts: Vec::new() }
    }

    /// Reads a list; none if it is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != MAGIC {
            return None;
        }
        let upload = lines.next().filter(|id| !id.is_empty())?.to_owned();
        let parts: Vec<_> = lines.take(PARTS_MAX + 1).map(part).collect::<Option<_>>()?;
        (parts.len() <= PARTS_MAX).then_some(Self { upload, parts })
    }

    /// Returns the list as text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{MAGIC}\n{}\n", self.upload);
        for part in &self.parts {
            match part {
                None => text.push('-'),
                Some(Part { sum, tag }) => {
                    text.push_str(&hex(sum));
                    text.push(' ');
                    text.push_str(tag);
                }
            }
            text.push('\n');
        }
        text
    }

    /// Notes that the server has a part.
    pub(super) fn enter(&mut self, number: usize, part: Part) {
        if self.parts.len() <= number {
            self.parts.resize(number + 1, None);
        }
        self.parts[number] = Some(part);
    }

    /// Returns whether the server has these bytes as part `number`.
    pub(super) fn has(&self, number: usize, sum: &Sum) -> bool {
        matches!(self.parts.get(number), Some(Some(part)) if part.sum == *sum)
    }

    /// Returns the tags of the first `count` parts; none if one of them is not there.
    pub(super) fn tags(&self, count: usize) -> Option<Vec<String>> {
        let tag = |part: &Option<Part>| part.as_ref().map(|part| part.tag.clone());
        self.parts.get(..count)?.iter().map(tag).collect()
    }
}

/// Reads the line of a part; none if it is not one.
fn part(line: &str) -> Option<Option<Part>> {
    if line == "-" {
        return Some(None);
    }
    let (hex, tag) = line.split_once(' ')?;
    let mut sum = Sum::default();
    if hex.len() != 2 * sum.len() || !hex.is_ascii() || tag.is_empty() {
        return None;
    }
    for (at, byte) in sum.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(Some(Part { sum, tag: tag.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Parts {
        let mut parts = Parts::new("an/id+=".into());
        for number in [0, 3, 1] {
            parts.enter(number, Part { sum: [number as u8; 32], tag: format!("\"tag {number}\"") });
        }
        parts
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let parts = filled();
        assert_eq!(Parts::parse(&parts.text()), Some(parts.clone()));
        assert!(parts.has(3, &[3; 32]) && !parts.has(3, &[1; 32]));
        assert!(!parts.has(2, &[0; 32]) && !parts.has(9, &[0; 32]));
        assert_eq!(parts.tags(2), Some(vec!["\"tag 0\"".to_owned(), "\"tag 1\"".to_owned()]));
        assert_eq!((parts.tags(3), parts.tags(5)), (None, None), "2 is missing, 4 is beyond");
        assert_eq!(parts.tags(0), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_list_is_none() {
        let text = filled().text();
        for wrong in [
            String::new(),
            text.replace("parts 1", "parts 2"),
            text.replace("an/id+=", ""),
            text.replace("0303", "03"),
            text.replace("0303", "03xy"),
            text.replace(" \"tag 3\"", ""),
            text[..text.len() - 12].to_owned(),
            "zfold parts 1".to_owned(),
            format!("{text}{}", "-\n".repeat(PARTS_MAX)),
        ] {
            assert_eq!(Parts::parse(&wrong), None, "{wrong}");
        }
        let cut = Parts::parse(&text[..text.len() - 1]);
        assert!(cut.is_some(), "the last line break says nothing");
    }
}
