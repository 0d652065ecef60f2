//! Text in lines of a width: between parts where that is possible, and never inside a word.

/// Returns the parts in lines of this width. A part that is wider is broken between its words, and
/// a word that is wider has a line of its own.
pub(super) fn flow(parts: &[String], width: usize) -> Vec<String> {
    let columns = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let words = if columns(part) <= width { vec![&**part] } else { part.split(' ').collect() };
        for (place, word) in words.into_iter().enumerate() {
            let gap = if place == 0 { "   " } else { " " };
            let room = |line: &String| columns(line) + columns(gap) + columns(word) <= width;
            match lines.last_mut().filter(|line| room(line)) {
                Some(line) => line.extend([gap, word]),
                None => lines.push(word.to_owned()),
            }
        }
    }
    lines
}
