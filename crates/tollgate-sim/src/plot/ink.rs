//! Colors of charts, by meaning.
//!
//! Lines of compared algorithms also differ in their dashes, for print and for lines that overlap.
//!
//! Invariant: people with color vision deficiencies can tell the colors apart, and from the background, in light and
//! dark. Tested by `tests::colors`.

use std::fmt::Write;

use super::Role;

/// The color of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// Primary text.
    Text,
    /// Secondary text.
    Soft,
    /// Grid lines.
    Grid,
    /// Highlighted lines: a limit, a border.
    Mark,
    /// The color of a role.
    Role(Role),
}

/// Red, green and blue.
pub(super) type Rgb = (u8, u8, u8);

const CONTESTANTS: [(Rgb, Rgb); 8] = [
    ((0x24, 0x57, 0xb8), (0x6c, 0x86, 0xe6)),
    ((0xdd, 0x7a, 0x00), (0xd9, 0x62, 0x2e)),
    ((0x11, 0x9a, 0x72), (0x3f, 0xdb, 0xa6)),
    ((0xb4, 0x78, 0xbd), (0xb3, 0x73, 0x9a)),
    ((0x6e, 0x3a, 0x0c), (0xff, 0xdb, 0x5c)),
    ((0x1f, 0x26, 0x30), (0xd5, 0xe6, 0xf7)),
    ((0x4b, 0x00, 0x69), (0x96, 0x00, 0xff)),
    ((0xc2, 0x18, 0x5b), (0xff, 0x5c, 0x8a)),
];

const DASHES: [&[f32]; 8] = [
    &[],
    &[7.0, 3.0],
    &[2.0, 2.5],
    &[9.0, 3.0, 2.0, 3.0],
    &[4.0, 2.5],
    &[12.0, 3.0],
    &[6.0, 2.0, 1.5, 2.0],
    &[3.0, 1.5],
];

impl Ink {
    /// Returns the colors for light and dark backgrounds.
    pub(super) const fn colors(self) -> (Rgb, Rgb) {
        match self {
            Self::Text => ((0x17, 0x1b, 0x22), (0xe4, 0xe8, 0xee)),
            Self::Soft => ((0x5a, 0x64, 0x73), (0x96, 0xa1, 0xb2)),
            Self::Grid => ((0xe1, 0xe4, 0xea), (0x25, 0x2c, 0x37)),
            Self::Mark => ((0x74, 0x46, 0xc2), (0xb7, 0x95, 0xff)),
            Self::Role(Role::Offered) => ((0xa9, 0xb3, 0xc1), (0x5d, 0x69, 0x7a)),
            Self::Role(Role::Admitted) => ((0x4f, 0x86, 0xd6), (0x5a, 0x8f, 0xdc)),
            Self::Role(Role::Refused) => ((0xd9, 0x43, 0x2e), (0xf0, 0x60, 0x4b)),
            Self::Role(Role::Contestant(which)) => CONTESTANTS[which as usize % CONTESTANTS.len()],
        }
    }

    /// Returns the lengths of dashes and gaps, alternating. Empty for a solid line.
    pub(super) const fn dashes(self) -> &'static [f32] {
        match self {
            Self::Mark => &[5.0, 4.0],
            Self::Role(Role::Contestant(which)) => DASHES[which as usize % DASHES.len()],
            _ => &[],
        }
    }

    /// Returns the CSS class that sets the color.
    pub(super) fn class(self) -> &'static str {
        const NUMBERED: [&str; 8] = ["tg-c0", "tg-c1", "tg-c2", "tg-c3", "tg-c4", "tg-c5", "tg-c6", "tg-c7"];
        match self {
            Self::Text => "tg-text",
            Self::Soft => "tg-soft",
            Self::Grid => "tg-grid",
            Self::Mark => "tg-mark",
            Self::Role(Role::Offered) => "tg-offered",
            Self::Role(Role::Admitted) => "tg-admitted",
            Self::Role(Role::Refused) => "tg-refused",
            Self::Role(Role::Contestant(which)) => NUMBERED[which as usize % NUMBERED.len()],
        }
    }

    /// Returns one of the 256 terminal colors; all of them are legible on black and on white.
    pub(super) const fn terminal(self) -> u8 {
        const CONTESTANTS: [u8; 8] = [69, 208, 42, 176, 130, 250, 99, 205];
        match self {
            Self::Text => 7,
            Self::Soft | Self::Grid => 244,
            Self::Mark => 141,
            Self::Role(Role::Offered) => 246,
            Self::Role(Role::Admitted) => 68,
            Self::Role(Role::Refused) => 203,
            Self::Role(Role::Contestant(which)) => CONTESTANTS[which as usize % CONTESTANTS.len()],
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        let roles = [Role::Offered, Role::Admitted, Role::Refused];
        let contestants = (0..7).map(Role::Contestant);
        [Self::Text, Self::Soft, Self::Grid, Self::Mark]
            .into_iter()
            .chain(roles.into_iter().chain(contestants).map(Self::Role))
    }
}

/// Formats a color as `#rrggbb`.
fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Returns the CSS rules of a standalone SVG file, which follow the color scheme of the reader.
pub(super) fn rules_alone() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for ink in Ink::all() {
        let _ = write!(light, ".{}{{color:{}}}", ink.class(), hex(ink.colors().0));
        let _ = write!(dark, ".{}{{color:{}}}", ink.class(), hex(ink.colors().1));
    }
    format!("{light}@media screen and (prefers-color-scheme:dark){{{dark}}}")
}

/// Returns the CSS rules for charts in a page, which follow the `color-scheme` of the page.
pub(crate) fn rules_within() -> String {
    let mut rules = String::new();
    for ink in Ink::all() {
        let (light, dark) = ink.colors();
        let _ = write!(rules, ".{}{{color:light-dark({},{})}}", ink.class(), hex(light), hex(dark));
    }
    rules
}
