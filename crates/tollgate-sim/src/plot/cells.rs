//! The cells of a strip: their shades, hints and times.

use super::scale::{Ends, Scale};
use super::{Axis, Numbers, Strip, number};

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
    pub(crate) fn of((requests, refused): (u64, u64), most: u64) -> Self {
        match (requests, refused) {
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
    #[allow(clippy::cast_precision_loss, reason = "a few hundred cells")]
    fn start(&self, cell: usize) -> f64 {
        self.from + self.step * cell as f64
    }

    /// Returns round times: positions from 0 to 1, and labels.
    pub(crate) fn times(&self, most: usize) -> Vec<(f64, String)> {
        let axis = Axis { numbers: Numbers::Time, ..Axis::default() };
        let ends = [self.from, self.start(self.cells.len())];
        let scale = Scale::new(&axis, ends.into_iter(), Ends::Tight, most);
        scale.ticks.into_iter().map(|it| (it.place, it.text)).collect()
    }

    /// Returns the most refusals in a cell.
    pub(crate) fn most(&self) -> u64 {
        self.cells.iter().map(|it| it.1).max().unwrap_or(0)
    }

    /// Returns the tooltip of a cell.
    pub(crate) fn hint(&self, cell: usize) -> String {
        let (requests, refused) = self.cells.get(cell).copied().unwrap_or_default();
        let time = super::moment::whole(self.start(cell)).unwrap_or_else(|| format!("cell {}", cell + 1));
        format!("{time}: {} of {} refused", number::count(refused), number::count(requests))
    }
}
