//! The level of a shedder: how many classes are shed.

/// The number of classes that are shed, in thousandths of a class.
///
/// ```
/// # use tollgate_overload::shedder::Level;
/// let level = Level::from_thousandths(1_250);
/// // The last of three classes is shed, and a quarter of the class before it.
/// assert_eq!([0, 1, 2].map(|rank| level.share(rank, 3)), [0, 250, 1_000]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u32);

impl Level {
    /// No request is shed.
    pub const ZERO: Self = Self(0);

    /// Creates a level from thousandths of a class.
    pub const fn from_thousandths(level: u32) -> Self {
        Self(level)
    }

    /// Returns the level in thousandths of a class.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// Returns the share of a class that is shed, in thousandths. Rank 0 is the most important of
    /// `classes` classes, and shed last.
    pub fn share(self, rank: u8, classes: u8) -> u32 {
        let before = u32::from(classes.saturating_sub(1).saturating_sub(rank)) * 1_000;
        self.0.saturating_sub(before).min(1_000)
    }

    /// Whether a request of a class is shed. `number` is spread evenly over all numbers.
    pub fn sheds(self, rank: u8, classes: u8, number: u32) -> bool {
        let thousandth = (u64::from(number) * 1_000) >> 32;
        thousandth < u64::from(self.share(rank, classes))
    }
}
