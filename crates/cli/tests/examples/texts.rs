//! The examples, found where people read them.

use std::path::Path;

use crate::common::results;

/// Returns the words of all commands, and of zfold itself, which has none: those that help lists,
/// without the lab, a program of its own.
pub(crate) fn commands() -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    let mut next = 0;
    while let Some(path) = all.get(next).cloned() {
        let below = help(&path);
        let mut is_list = false;
        for line in below.lines() {
            is_list = match line.starts_with(' ') || line.is_empty() {
                true => is_list,
                false => line == "Commands:",
            };
            let name = line.strip_prefix("  ").filter(|name| !name.starts_with(' '));
            if let Some(name) = name.and_then(|name| name.split_whitespace().next())
                && is_list
                && !["help", "lab"].contains(&name)
            {
                all.push([path.clone(), vec![name.to_owned()]].concat());
            }
        }
        next += 1;
    }
    all
}

fn help(path: &[String]) -> String {
    let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
    results(&words)
}

/// Returns the command lines of a command's help: those under "Examples:", four spaces from the
/// margin, where two are for what they do; or two, if they are for themselves.
pub(crate) fn help_examples(path: &[String]) -> Vec<String> {
    let help = help(path);
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    let mut lines: Vec<String> =
        help.lines().filter_map(|line| line.strip_prefix("Example: ")).map(str::to_owned).collect();
    let mut is_example = false;
    for line in help.lines() {
        if !line.starts_with(' ') && !line.is_empty() {
            is_example = line == "Examples:";
        }
        let told = line.strip_prefix("    ");
        let told = told.or_else(|| line.strip_prefix("  ").filter(|it| it.starts_with("zfold ")));
        if let Some(told) = told.filter(|_| is_example) {
            push(&mut lines, told);
        }
    }
    lines
}

/// Returns the commands of the README: its blocks of `sh`, and those behind a prompt.
pub(crate) fn readme_examples() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(path).expect("the README");
    let (mut lines, mut block) = (Vec::new(), None);
    for line in text.lines() {
        match (block, line.strip_prefix("```")) {
            (Some(_), Some(_)) => block = None,
            (None, Some(language)) => block = Some(language),
            (Some("sh"), None) if !line.is_empty() && !line.starts_with('#') => {
                push(&mut lines, line);
            }
            (Some("text"), None) => lines.extend(line.strip_prefix("$ ").map(str::to_owned)),
            _ => {}
        }
    }
    // Comments for people.
    for line in &mut lines {
        let len = line.find("  #").unwrap_or(line.len());
        line.truncate(line[..len].trim_end().len());
    }
    lines
}

/// Adds a line, or the rest of the one before.
fn push(lines: &mut Vec<String>, line: &str) {
    match lines.last_mut().filter(|last| last.ends_with('\\')) {
        Some(last) => {
            last.pop();
            last.push_str(line.trim_start());
        }
        None => lines.push(line.to_owned()),
    }
}
