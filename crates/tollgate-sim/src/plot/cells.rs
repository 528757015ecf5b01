//! Draws a strip as a scene, and computes the shade of each cell.

use super::ink::Ink;
use super::scale::{Ends, Scale};
use super::scene::{Anchor, Area, MAX_LABEL_COLUMNS, Scene, Shape, width_of};
use super::{Axis, Numbers, Role, Strip, number};
use crate::sanitize;

const HEIGHT: f64 = 30.0;

/// Shade of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shade {
    /// No requests.
    Empty,
    /// No refusals.
    Calm,
    /// Refusals, from 1 to [`Shade::DARKEST`].
    Refused(u8),
}

impl Shade {
    /// The shade of the cell with the most refusals.
    pub(crate) const DARKEST: u8 = 5;

    /// Returns the shade of a cell relative to the cell with the most refusals. The scale is a square root, so that a
    /// few refusals are visible beside very many.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1 to 5"
    )]
    pub(crate) fn of((asked, refused): (u64, u64), most: u64) -> Self {
        match (asked, refused) {
            (0, 0) => Self::Empty,
            (_, 0) => Self::Calm,
            _ => {
                let part = (refused as f64 / most.max(refused) as f64).sqrt();
                Self::Refused(((part * f64::from(Self::DARKEST)).ceil() as u8).clamp(1, Self::DARKEST))
            }
        }
    }

    /// Returns the opacity of the shade.
    pub(crate) const fn opacity(self) -> f64 {
        match self {
            Self::Empty => 0.0,
            Self::Calm => 0.35,
            Self::Refused(level) => {
                [0.25, 0.25, 0.42, 0.6, 0.8, 1.0][if level > 5 { 5 } else { level as usize }]
            }
        }
    }
}

impl Strip {
    /// Returns the time axis.
    pub(super) fn scale(&self, most: usize) -> Scale {
        let axis = Axis { numbers: Numbers::Time, ..Axis::default() };
        Scale::new(&axis, [self.from, self.until()].into_iter(), Ends::Tight, most)
    }

    #[allow(clippy::cast_precision_loss, reason = "a few hundred cells")]
    fn until(&self) -> f64 {
        self.start(self.cells.len())
    }

    #[allow(clippy::cast_precision_loss, reason = "a few hundred cells")]
    fn start(&self, cell: usize) -> f64 {
        self.from + self.step * cell as f64
    }

    /// Returns round times: positions from 0 to 1, and labels.
    pub(crate) fn times(&self, most: usize) -> Vec<(f64, String)> {
        self.scale(most).ticks.into_iter().map(|it| (it.place, it.text)).collect()
    }

    /// Returns the most refusals in a cell.
    pub(crate) fn most(&self) -> u64 {
        self.cells.iter().map(|it| it.1).max().unwrap_or(0)
    }

    /// Returns the tooltip of a cell.
    pub(crate) fn hint(&self, cell: usize) -> String {
        let (asked, refused) = self.cells.get(cell).copied().unwrap_or_default();
        let time = super::moment::whole(self.start(cell)).unwrap_or_else(|| format!("cell {}", cell + 1));
        format!("{time}: {} of {} refused", number::count(refused), number::count(asked))
    }

    /// Draws the strip at this width.
    pub(super) fn scene(&self, width: f64) -> Scene {
        let mut shapes = Vec::new();
        let mut top = 0.0;
        let label = sanitize::shown(&self.label, MAX_LABEL_COLUMNS);
        let words = |at, text: &str, ink, anchor, is_bold| Shape::Words {
            at,
            text: text.to_owned(),
            ink,
            anchor,
            is_bold,
        };
        if !label.is_empty() {
            shapes.push(words((0.0, 12.0), &label, Ink::Text, Anchor::Start, true));
            top = 20.0;
        }
        let base = vec![(0.0, top + HEIGHT + 1.0), (width, top + HEIGHT + 1.0)];
        shapes.push(Shape::Line { points: base, ink: Ink::Grid, thick: 1.0, is_dashed: false });
        let most = self.most();
        let mut shades: Vec<_> = self.cells.iter().map(|it| Shade::of(*it, most)).collect();
        shades.sort_unstable();
        shades.dedup();
        for shade in shades.into_iter().filter(|it| *it != Shade::Empty) {
            let ink = if shade == Shade::Calm { Role::Offered } else { Role::Refused };
            let boxes = self.boxes(shade, most, (width, top));
            shapes.push(Shape::Boxes { boxes, ink: Ink::Role(ink), opacity: shade.opacity() });
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few hundred wide")]
        for tick in self.scale((width / 90.0) as usize).ticks {
            let half = width_of(&tick.text, false) / 2.0;
            let middle = (tick.place * width).clamp(half, (width - half).max(half));
            shapes.push(words((middle, top + HEIGHT + 16.0), &tick.text, Ink::Soft, Anchor::Middle, false));
        }
        let refused = self.cells.iter().fold(0_u64, |sum, it| sum.saturating_add(it.1));
        let said = format!("{label}: {} refused", number::count(refused));
        Scene { width, height: top + HEIGHT + 22.0, words: said, shapes }
    }

    #[allow(clippy::cast_precision_loss, reason = "a few hundred cells")]
    fn boxes(&self, shade: Shade, most: u64, (width, top): (f64, f64)) -> Vec<Area> {
        let wide = width / self.cells.len().max(1) as f64;
        let gap = (wide * 0.12).min(1.0);
        let area = |(cell, _): (usize, &(u64, u64))| Area {
            corner: (cell as f64 * wide, top),
            size: (wide - gap, HEIGHT),
            hint: (self.cells.len() <= 400 && shade != Shade::Calm).then(|| self.hint(cell)),
        };
        self.cells.iter().enumerate().filter(|(_, it)| Shade::of(**it, most) == shade).map(area).collect()
    }
}
