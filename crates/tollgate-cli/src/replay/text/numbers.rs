//! Formats numbers, shares and strips for terminals.

use tollgate::Span;
use tollgate_sim::plot::number::plural;

pub(crate) use tollgate_sim::plot::number::{count as number, share};

/// Formats a count: `1 request`, `2 requests`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    plural(count, one, &format!("{one}s"))
}

const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Renders a strip of at most `widest` blocks: the height shows refusals, `·` requests without
/// refusals, a space no requests.
pub(crate) fn strip(requests: &[u64], refused: &[u64], widest: usize) -> String {
    let wide = requests.len().div_ceil(widest.max(1)).max(1);
    let sums = |cells: &[u64]| -> Vec<u64> { cells.chunks(wide).map(|cells| cells.iter().sum()).collect() };
    let (requests, refused) = (sums(requests), sums(refused));
    let most = refused.iter().copied().max().unwrap_or(0);
    let block = |(&requests, &refused): (&u64, &u64)| match (requests, refused) {
        (0, _) => ' ',
        (_, 0) => '·',
        (_, refused) => {
            let eighth = (refused.saturating_mul(8).div_ceil(most.max(1))).clamp(1, 8) - 1;
            EIGHTHS[usize::try_from(eighth).unwrap_or(0)]
        }
    };
    requests.iter().zip(&refused).map(block).collect()
}

/// Returns the number of cells in one block of a strip.
pub(crate) fn cells_in_a_block(cells: usize, widest: usize) -> u64 {
    u64::try_from(cells.div_ceil(widest.max(1)).max(1)).unwrap_or(1)
}

/// Renders a bar proportional to the longest.
pub(crate) fn bar(part: u64, longest: u64, widest: u64) -> String {
    if part == 0 || longest == 0 {
        return String::new();
    }
    let eighths =
        u64::try_from(u128::from(part) * u128::from(widest) * 8 / u128::from(longest)).unwrap_or(0).max(1);
    let mut bar = "█".repeat(usize::try_from(eighths / 8).unwrap_or(0));
    if let Some(rest) = (eighths % 8).checked_sub(1) {
        bar.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][usize::try_from(rest).unwrap_or(0)]);
    }
    bar
}

/// Formats a duration in a suitable unit: `30 minutes`, `1 h 30 min`.
pub(crate) fn stretch(seconds: u64) -> String {
    if seconds > 3_600 && !seconds.is_multiple_of(3_600) {
        return Span::from_secs(seconds).human_exact().to_string();
    }
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let unit = units.into_iter().find(|(size, _)| seconds.is_multiple_of(*size));
    let (size, name) = unit.unwrap_or((1, "second"));
    counted(seconds / size, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_use_a_suitable_unit() {
        assert_eq!(
            [1, 60, 90, 7_200, 17_280].map(stretch),
            ["1 second", "1 minute", "90 seconds", "2 hours", "4 h 48 min"]
        );
    }

    #[test]
    fn a_strip_fits_its_width_and_shows_every_refusal() {
        assert_eq!(strip(&[4, 4, 0, 4], &[0, 1, 0, 4], 10), "·▂ █");
        let (requests, mut refused) = (vec![1; 240], vec![0; 240]);
        refused[239] = 1;
        let narrow = strip(&requests, &refused, 72);
        assert!(narrow.chars().count() <= 72 && narrow.ends_with('█'), "{narrow}");
        assert_eq!([bar(0, 8, 2), bar(8, 8, 2), bar(1, 100, 2), bar(5, 8, 1)], ["", "██", "▏", "▋"]);
    }
}
