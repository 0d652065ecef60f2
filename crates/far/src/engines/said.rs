//! Messages of servers in their own words, as one line of bounded length.

/// The most characters that are kept of a server's message.
const SAID_MAX: usize = 400;

/// Returns what a server says, in one line of a bounded length. Its characters stay as they are: a
/// caller that shows them to people cleans them.
pub(crate) fn short(said: &str) -> String {
    let mut line = String::new();
    for word in said.split_whitespace() {
        if line.len() > 4 * SAID_MAX {
            break;
        }
        line.extend((!line.is_empty()).then_some(' '));
        // A word, too, may be long.
        line.extend(word.chars().take(SAID_MAX + 1));
    }
    match line.char_indices().nth(SAID_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_one_line_with_a_bound() {
        assert_eq!(short(" ERR\n no\t room\r\n"), "ERR no room");
        assert_eq!(short(&"é".repeat(SAID_MAX)), "é".repeat(SAID_MAX));
        for long in ["é".repeat(4 << 20), "x ".repeat(4 << 20)] {
            let said = short(&long);
            assert_eq!(said.chars().count(), SAID_MAX + 3);
            assert!(said.ends_with("..."));
        }
    }
}
