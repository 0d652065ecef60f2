//! How the view looks, at any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};

use super::app::{App, HELP};
use crate::shared::table::short_size;
use crate::stat;
use crate::watched::rows::{COLUMNS, Column, NOTHING, fitting, line};

/// Least height that leaves room for the past of the chosen one.
const TALL: u16 = 16;

/// Height of the past: a title and a curve.
const PAST: u16 = 4;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    let head = app.machine.parts().join("   ");
    // Lines end between words, so some room is left over.
    let lines = head.len().div_ceil(usize::from(area.width.saturating_sub(12).max(1)));
    let parts = [
        Constraint::Length((lines as u16).min(area.height / 3)),
        Constraint::Min(0),
        Constraint::Length(if area.height >= TALL { PAST } else { 0 }),
        Constraint::Length(area.height.min(1)),
    ];
    let [above, middle, past_area, below] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(head).wrap(Wrap { trim: true }), above);
    let opened = app.opened.and(app.chosen());
    match opened.and_then(|one| stat::of_one(&app.now, &app.before, one.pid)) {
        Some(text) => {
            let last = text.lines().count().saturating_sub(middle.height.into()) as u16;
            let first = app.opened.unwrap_or(0).min(last);
            // Keys move from what is shown.
            app.opened = Some(first);
            frame.render_widget(Paragraph::new(text).scroll((first, 0)), middle);
        }
        None => list(frame, middle, app),
    }
    past(frame, past_area, app);
    let foot = match &app.message {
        Some(message) => Line::styled(message.clone(), BOLD),
        None => Line::styled(HELP, DIM),
    };
    frame.render_widget(foot, below);
}

fn list(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let columns = fitting(area.width.into());
    let mut lines = vec![titles(&columns, app.order)];
    let room = usize::from(area.height.saturating_sub(1));
    // The chosen one is in view.
    let first = app.place().unwrap_or(0).saturating_sub(room.saturating_sub(1));
    let width = usize::from(area.width);
    for (place, one) in app.rows.iter().enumerate().skip(first).take(room) {
        let style = if app.place() == Some(place) { CHOSEN } else { Style::new() };
        lines.push(Line::styled(format!("{:<width$}", line(&columns, one)), style));
    }
    if app.rows.is_empty() {
        lines.push(Line::from(NOTHING));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns the titles; the one that rows are ordered by is underlined.
fn titles(columns: &[&'static Column], order: usize) -> Line<'static> {
    let mut spans = Vec::new();
    for column in columns {
        let pad = column.width.saturating_sub(column.title.len());
        spans.push(Span::styled(" ".repeat(pad), BOLD));
        let is_order = std::ptr::eq(*column, &COLUMNS[order]);
        let style = if is_order { BOLD.add_modifier(Modifier::UNDERLINED) } else { BOLD };
        spans.push(Span::styled(column.title, style));
        spans.push(Span::raw(" "));
    }
    spans.push(Span::styled("COMMAND", BOLD));
    Line::from(spans)
}

/// Draws what the chosen one had resident at the last looks, as far as it fits.
fn past(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let (Some(chosen), Some(past)) = (app.chosen(), app.past()) else { return };
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let limit = chosen.limit.map(|bytes| format!(" of {}", short_size(bytes)));
    let resident = short_size(chosen.resident);
    let title = format!("{} resident {resident}{}", chosen.pid, limit.unwrap_or_default());
    frame.render_widget(Line::styled(title, BOLD), above);
    let shown: Vec<u64> = past.iter().rev().take(area.width.into()).rev().copied().collect();
    // The limit is the top of the curve, unless more than it was seen.
    let most = past.iter().copied().max().unwrap_or(0);
    let top = chosen.limit.filter(|limit| *limit < most * 4).unwrap_or(0).max(most);
    frame.render_widget(Sparkline::default().data(&shown).max(top.max(1)), below);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::app::tests::look;
    use super::*;
    use crate::watched::machine::{Machine, Pressure};

    fn app() -> App {
        let machine = Machine {
            memory_bytes: Some(8 << 30),
            available_bytes: Some(2 << 30),
            pressure: Some(Pressure { some_avg10: 1.5, full_avg10: 0.0 }),
            ..Machine::default()
        };
        let mut app = App::default();
        for mib in [10, 20, 60] {
            app.update(look(&[(4711, mib), (2, 30)]), machine.clone());
        }
        app.choose(0);
        app
    }

    fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| draw(frame, app)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let line = |y| {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
            line.trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }

    #[test]
    fn eighty_columns_show_what_matters() {
        let lines = screen(&mut app(), 80, 24);
        let memory = "memory 8.00G   available 2.00G   pressure some 1.5% full 0.0%";
        assert_eq!(lines[0], format!("{memory}   zram none"));
        assert_eq!(lines[1], "zswap none");
        assert_eq!(lines[2], "    PID  LIMIT    RES STORED RATIO FAULT/S     P50     P99 COMMAND");
        assert_eq!(
            lines[3],
            "   4711  64.0M  60.0M   128M  4.00       0       -       - program 4711"
        );
        assert!(lines[5].starts_with("      3   none  1.00M     0B     -       -"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("resident 60.0M")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains('█')), "{lines:#?}");
        assert!(lines[23].starts_with("q quit   arrows choose   Enter open"), "{lines:#?}");
    }

    #[test]
    fn wide_screens_show_all_and_narrow_ones_the_most_important() {
        let lines = screen(&mut app(), 200, 50);
        let last = " REFLT/S EVICT/S BACKING   REQ/S TOUCHED  STAYS COMMAND";
        assert!(lines[1].contains(last), "{lines:#?}");
        let lines = screen(&mut app(), 20, 12);
        assert!(lines.contains(&"    PID    RES COMMAND".chars().take(20).collect()), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("   4711  60.0M prog")), "{lines:#?}");
        assert_eq!(lines[..2], ["memory 8.00G", "available 2.00G"]);
    }

    #[test]
    fn everything_can_be_drawn_at_every_size() {
        let mut apps = [App::default(), app(), app(), app()];
        apps[2].opened = Some(0);
        apps[3].opened = Some(u16::MAX);
        for app in &mut apps {
            for (width, height) in
                [(1, 1), (3, 2), (20, 6), (20, 24), (80, 24), (200, 60), (400, 3)]
            {
                assert_eq!(screen(app, width, height).len(), usize::from(height));
            }
        }
    }

    #[test]
    fn what_is_opened_shows_its_statistics_with_rates() {
        let mut app = app();
        for (place, part) in [(0, "4711: program 4711"), (2, "mem_used_total")] {
            app.choose(place);
            app.opened = Some(0);
            let lines = screen(&mut app, 100, 60);
            for part in [part, "/s", "resident"] {
                assert!(lines.iter().any(|line| line.contains(part)), "{part:?}: {lines:#?}");
            }
            app.opened = Some(u16::MAX);
            let lines = screen(&mut app, 100, 20);
            assert!(lines.iter().any(|line| line.contains("/s")), "the end: {lines:#?}");
            assert!(app.opened < Some(u16::MAX), "keys move from the end that is shown");
        }
    }
}
