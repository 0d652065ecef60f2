//! The chosen run or disk: its figures, now and at the last looks.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};

use super::app::App;
use super::figures::of_subject;
use super::flow::flow;
use crate::shared::table::{short_rate, short_size};
use crate::watched::subject::Subject;

/// Width from which curves stand side by side.
const WIDE: u16 = 60;

/// Height of a curve under its title.
const CURVE: u16 = 3;

/// Width of a figure, with its name.
const FIGURE: usize = 38;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Returns the height of the past.
pub(super) fn past_height(width: u16) -> u16 {
    if width >= WIDE { CURVE + 1 } else { 2 * (CURVE + 1) }
}

/// Draws what the chosen one had resident, and its ratio, at the last looks.
pub(super) fn past(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let (Some(chosen), Some(past)) = (app.chosen(), app.past()) else { return };
    let halves = [Constraint::Fill(1), Constraint::Fill(1)];
    let [left, right] = match area.width >= WIDE {
        true => Layout::horizontal(halves).spacing(2).areas(area),
        false => Layout::vertical(halves).areas(area),
    };
    let limit = chosen.limit().map(|bytes| format!(" of {}", short_size(bytes)));
    let title = format!(
        "{} resident {}{}",
        chosen.pid(),
        short_size(chosen.resident()),
        limit.unwrap_or_default()
    );
    // The limit is the top of the curve, unless more than it was seen.
    let most = past.resident.iter().copied().max().unwrap_or(0);
    let top = chosen.limit().filter(|limit| *limit < most * 4).unwrap_or(0).max(most);
    curve(frame, left, &title, &past.resident, top);
    let ratio = chosen.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let top = past.ratio.iter().copied().max().unwrap_or(0);
    curve(frame, right, &format!("ratio {ratio}"), &past.ratio, top);
}

/// Draws the last values that fit.
fn curve(frame: &mut Frame<'_>, area: Rect, title: &str, values: &VecDeque<u64>, top: u64) {
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::styled(title.to_owned(), BOLD), above);
    let skipped = values.len().saturating_sub(area.width.into());
    let shown: Vec<u64> = values.iter().skip(skipped).copied().collect();
    frame.render_widget(Sparkline::default().data(&shown).max(top.max(1)), below);
}

/// Returns the figures in this many columns, one below the other in each.
fn in_columns(figures: &[(&str, String)], columns: usize) -> Vec<String> {
    let height = figures.len().div_ceil(columns);
    let cell =
        |(name, value): &(&str, String)| format!("{:<FIGURE$}", format!("{name:<15} {value:>20}"));
    (0..height).map(|row| figures.iter().skip(row).step_by(height).map(cell).collect()).collect()
}

/// Draws all of the chosen one.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, chosen: &Subject) {
    let figures = of_subject(chosen);
    let width = usize::from(area.width);
    let columns = (width / FIGURE).clamp(1, 3);
    let lines = match width {
        FIGURE.. => in_columns(&figures, columns),
        _ => figures
            .iter()
            .flat_map(|(name, value)| flow(&[format!("{name} {value}")], width))
            .collect(),
    };
    let height = lines.len();
    // Curves are shown where they have room below the figures.
    let room = usize::from(area.height).saturating_sub(1 + height);
    let [past_height, work_height] = [past_height(area.width), CURVE + 1];
    let has_past = room >= usize::from(past_height);
    let has_work = room >= usize::from(past_height + work_height);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(height as u16),
        Constraint::Length(if has_past { past_height } else { 0 }),
        Constraint::Length(if has_work { work_height } else { 0 }),
        Constraint::Min(0),
    ];
    let [title, table, past_area, work_area, _] = Layout::vertical(parts).areas(area);
    let line = format!("{}  {}", chosen.pid(), chosen.command());
    frame.render_widget(Line::styled(line, BOLD), title);
    frame.render_widget(Paragraph::new(lines.join("\n")), table);
    if has_past {
        past(frame, past_area, app);
    }
    if let Some(past) = app.past().filter(|_| has_work) {
        let (what, rate) = match chosen {
            Subject::Disk(_) => ("requests", chosen.requests()),
            Subject::Run(_) | Subject::Guests(_) => ("faults", chosen.faults()),
        };
        let rate = rate.map_or_else(|| "-".to_owned(), short_rate);
        let top = past.work.iter().copied().max().unwrap_or(0);
        curve(frame, work_area, &format!("{what}/s {rate}"), &past.work, top);
    }
}
