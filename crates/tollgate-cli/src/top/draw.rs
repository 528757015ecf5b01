//! Draws the screen from a `State`.
//!
//! From 70x22 on, all panes are visible; below that, only the focused one.

mod header;
mod panes;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::state::{Pane, Popup, State};

/// The minimum size.
const MIN_SIZE: (u16, u16) = (40, 10);
/// The size from which all panes are visible.
const FULL_SIZE: (u16, u16) = (70, 22);

/// Styles, without colors if the user wants none.
#[derive(Clone, Copy)]
pub(super) struct Palette {
    pub(super) colors: bool,
}

impl Palette {
    fn of(self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.of(Color::Green)
    }

    /// Also bold, to be visible without colors.
    fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn odd(self) -> Style {
        self.of(Color::Yellow)
    }

    fn quiet(self) -> Style {
        if self.colors { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, palette: Palette) {
    let area = frame.area();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        let text = format!(
            "{}x{} is too small: {}x{} is the least",
            area.width, area.height, MIN_SIZE.0, MIN_SIZE.1
        );
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let is_roomy = area.width >= FULL_SIZE.0 && area.height >= FULL_SIZE.1;
    let header = header::lines(state, palette, area.width);
    let heights = [
        Constraint::Length(u16::try_from(header.len()).unwrap_or(3)),
        Constraint::Length(if is_roomy { 4 } else { 0 }),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [top, traffic, body, foot] = Layout::vertical(heights).areas(area);
    frame.render_widget(Paragraph::new(header), top);
    if is_roomy {
        header::traffic(frame, traffic, state, palette);
        grid(frame, body, state, palette);
    } else {
        panes::draw(frame, body, state.focus, state, palette);
    }
    frame.render_widget(Paragraph::new(footer(state, palette)), foot);
    if let Some(open) = &state.popup {
        popup(frame, area, open, palette);
    }
}

fn grid(frame: &mut Frame<'_>, area: Rect, state: &State, palette: Palette) {
    let heights = [Constraint::Fill(3), Constraint::Fill(2), Constraint::Fill(3)];
    let [limits, middle, decisions] = Layout::vertical(heights).areas(area);
    let [keys, routes] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1).areas(middle);
    for (pane, area) in
        [(Pane::Limits, limits), (Pane::Keys, keys), (Pane::Routes, routes), (Pane::Decisions, decisions)]
    {
        panes::draw(frame, area, pane, state, palette);
    }
}

fn footer(state: &State, palette: Palette) -> Line<'_> {
    if state.typing {
        return Line::from(vec![Span::raw("/"), Span::raw(&*state.filter), Span::styled("█", palette.odd())]);
    }
    let mut spans = Vec::new();
    if !state.filter.is_empty() {
        spans.push(Span::styled(format!("filter: {} (esc)  ", state.filter), palette.odd()));
    }
    spans.push(Span::styled(
        "q quit  tab pane  enter open  / filter  s sort  p pause  ? help",
        palette.quiet(),
    ));
    Line::from(spans)
}

fn popup(frame: &mut Frame<'_>, area: Rect, popup: &Popup, palette: Palette) {
    let longest = popup.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = u16::try_from(longest + 4).unwrap_or(u16::MAX).clamp(30, area.width - 2);
    let inner = usize::from(width - 4).max(1);
    let wrapped: usize = popup.lines.iter().map(|line| line.chars().count().div_ceil(inner).max(1)).sum();
    let height = u16::try_from(wrapped + 2).unwrap_or(u16::MAX).clamp(3, area.height - 2);
    let at = area.centered(Constraint::Length(width), Constraint::Length(height));
    let block = Block::bordered()
        .title(format!(" {} ", popup.title))
        .title_bottom(Line::styled(" esc closes ", palette.quiet()).right_aligned())
        .padding(ratatui::widgets::Padding::horizontal(1));
    let lines: Vec<_> = popup.lines.iter().map(|line| Line::raw(&**line)).collect();
    frame.render_widget(Clear, at);
    let text = Paragraph::new(lines).block(block).wrap(Wrap { trim: false }).scroll((popup.scroll, 0));
    frame.render_widget(text, at);
}
