//! How the view looks, at any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::app::{App, Mode};
use super::detail;
use super::figures::of_machine;
use super::flow::flow;
use super::keys::HELP;
use crate::shared::table::short_size;
use crate::watched::columns::{COLUMNS, Column, fitting};
use crate::watched::subject::Subject;

/// Least height that leaves room for the past of the chosen one.
const TALL: u16 = 16;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App) {
    let area = frame.area();
    let head = flow(&of_machine(&app.machine), area.width.into());
    let head_height = (head.len() as u16).min(area.height / 3);
    let rows = [
        Constraint::Length(head_height),
        Constraint::Min(0),
        Constraint::Length(area.height.min(1)),
    ];
    let [top, middle, bottom] = Layout::vertical(rows).areas(area);
    frame.render_widget(Paragraph::new(head.into_iter().map(Line::from).collect::<Vec<_>>()), top);
    match (&app.mode, app.chosen()) {
        (Mode::Help, _) => help(frame, middle),
        (Mode::Detail, Some(chosen)) => detail::draw(frame, middle, app, chosen),
        _ if area.height >= TALL => {
            let height = detail::past_height(middle.width);
            let [list_area, past_area] =
                Layout::vertical([Constraint::Min(0), Constraint::Length(height)]).areas(middle);
            list(frame, list_area, app);
            detail::past(frame, past_area, app);
        }
        _ => list(frame, middle, app),
    }
    frame.render_widget(foot(app, area.width.into()), bottom);
}

fn list(frame: &mut Frame<'_>, area: Rect, app: &App) {
    if area.height == 0 {
        return;
    }
    let columns = fitting(area.width.into());
    let mut lines = vec![titles(&columns, app.order)];
    let room = usize::from(area.height - 1);
    // The chosen one is in view.
    let first = app.place().unwrap_or(0).saturating_sub(room.saturating_sub(1));
    for (place, one) in app.subjects.iter().enumerate().skip(first).take(room) {
        let line = row(&columns, one, area.width.into());
        let style = if app.place() == Some(place) { CHOSEN } else { Style::new() };
        lines.push(Line::styled(line, style));
    }
    if app.subjects.is_empty() {
        lines.push(Line::from("no runs, disks or guests of this user"));
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

/// Returns a row that is as wide as the screen.
fn row(columns: &[&Column], one: &Subject, width: usize) -> String {
    let cell = |column: &&Column| format!("{:>1$} ", column.cell(one), column.width);
    let row: String = columns.iter().map(cell).collect();
    format!("{:<width$}", row + &one.command())
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let line = |(key, what): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("{key:<10}"), BOLD), Span::raw(*what)])
    };
    let mut lines: Vec<Line<'_>> = HELP.iter().map(line).collect();
    lines.push(Line::default());
    for told in [
        "RES: memory that counts against the limit.",
        "STORED: pages that lie compressed, at their full size.",
        "P50, P99: latency of the faults of the last interval.",
        "REFLT: pages loaded again before they were compressed.",
        "EVICT: pages evicted from a process, or from a disk's memory.",
    ] {
        lines.push(Line::styled(told, DIM));
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// Returns the last line: the typed text, the last event, or the keys.
fn foot(app: &App, width: usize) -> Line<'static> {
    if let (Some(typed), Some(chosen)) = (&app.typed, app.chosen()) {
        let now = chosen.limit().map_or_else(|| "none".to_owned(), short_size);
        let told = app.message.as_ref().map(|why| format!("  ({why})")).unwrap_or_default();
        let long = format!("new limit of {} (now {now}): {typed}_{told}", chosen.pid());
        let line = if long.chars().count() <= width { long } else { format!("limit: {typed}_") };
        return Line::styled(line, BOLD);
    }
    if let Some(message) = &app.message {
        return Line::styled(message.clone(), BOLD);
    }
    let keys = ["? help", "q quit", "Enter open", "l limit", "o page out", "p pause", "s order"];
    let keys = keys.map(str::to_owned);
    Line::styled(flow(&keys, width).into_iter().next().unwrap_or_default(), DIM)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::super::app::tests::{disk, run};
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
            app.update(vec![run(4711, mib), run(2, 30), disk(3)], machine.clone());
        }
        app.choose(0);
        app
    }

    fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
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
        let lines = screen(&app(), 80, 24);
        let memory = "memory 8.00G   available 2.00G   pressure some 1.5% full 0.0%";
        assert_eq!(lines[0], format!("{memory}   zram none"));
        assert_eq!(lines[1], "zswap none");
        assert_eq!(lines[2], "    PID  LIMIT    RES STORED RATIO FAULT/S     P50     P99 COMMAND");
        assert_eq!(
            lines[3],
            "   4711  64.0M  60.0M   128M  4.00    1234  6.05us  59.9us program 4711"
        );
        assert!(lines[5].starts_with("      3   none  1.00M     0B     -       -"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("resident 60.0M")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains('█')), "{lines:#?}");
        assert!(lines[23].starts_with("? help   q quit   Enter open"), "{lines:#?}");
    }

    #[test]
    fn wide_screens_show_all_and_narrow_ones_the_most_important() {
        let lines = screen(&app(), 200, 50);
        assert!(lines[1].contains(" REFLT/S EVICT/S BACKING   REQ/S COMMAND"), "{lines:#?}");
        let lines = screen(&app(), 20, 12);
        assert!(lines.contains(&"    PID    RES COMMAND".chars().take(20).collect()), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("   4711  60.0M prog")), "{lines:#?}");
        assert_eq!(lines[11], "? help   q quit");
        assert_eq!(lines[2..4], ["pressure some 1.5%", "full 0.0%"]);
    }

    #[test]
    fn everything_can_be_drawn_at_every_size() {
        let mut apps = vec![App::default(), app(), app(), app(), app()];
        apps[2].mode = Mode::Detail;
        apps[3].mode = Mode::Help;
        apps[4].key(KeyEvent::new(KeyCode::Char('l'), KeyModifiers::NONE));
        for app in &apps {
            for (width, height) in
                [(1, 1), (3, 2), (20, 6), (20, 24), (80, 24), (200, 60), (400, 3)]
            {
                assert_eq!(screen(app, width, height).len(), usize::from(height));
            }
        }
    }

    #[test]
    fn detail_and_prompt_tell_of_the_chosen_one() {
        let mut app = app();
        app.mode = Mode::Detail;
        let lines = screen(&app, 80, 40);
        for part in
            ["4711  program 4711", "faults", "0, 1234/s", "p50, p99 now", "6.05 us, 59.9 us"]
        {
            assert!(lines.iter().any(|line| line.contains(part)), "no {part:?} in {lines:#?}");
        }
        let narrow = screen(&app, 20, 24);
        assert!(narrow.contains(&"resident 60.0M".to_owned()), "{narrow:#?}");
        assert!(narrow.contains(&"us, 59.9 us".to_owned()), "no figure is cut: {narrow:#?}");
        app.key(KeyEvent::new(KeyCode::Char('l'), KeyModifiers::NONE));
        app.key(KeyEvent::new(KeyCode::Char('3'), KeyModifiers::NONE));
        let lines = screen(&app, 80, 24);
        assert_eq!(lines[23], "new limit of 4711 (now 64.0M): 3_");
    }
}
