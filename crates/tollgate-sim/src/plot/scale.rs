//! Maps values to positions on an axis, and chooses its round numbers.
//!
//! Invariant: a position is a number from 0 to 1 for all values. Tested by `tests::drawn`.

use super::{Axis, Numbers, moment, number};

/// The largest magnitude that is drawn. Differences and squares of it are finite.
const MAX_MAGNITUDE: f64 = 1e18;

/// Maps values to positions from 0 to 1.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    numbers: Numbers,
    step: f64,
    /// Ticks in ascending order.
    pub(super) ticks: Vec<Tick>,
}

/// A round number on an axis.
#[derive(Clone, Debug)]
pub(super) struct Tick {
    /// Position, from 0 to 1.
    pub(super) place: f64,
    pub(super) text: String,
}

/// Ends of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// From zero up to a round number.
    FromZero,
    /// From the first value to the last.
    Tight,
}

impl Scale {
    /// Creates the scale of `values`, with at most `most` ticks.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, ends: Ends, most: usize) -> Self {
        let most = whole(most.clamp(2, 40));
        let to = axis.to.filter(|it| it.is_finite()).map(|it| it.clamp(-MAX_MAGNITUDE, MAX_MAGNITUDE));
        let is_logarithmic = axis.numbers == Numbers::Logarithmic;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|it| it.is_finite() && (!is_logarithmic || *it > 0.0)).chain(to) {
            low = low.min(value.clamp(-MAX_MAGNITUDE, MAX_MAGNITUDE));
            high = high.max(value.clamp(-MAX_MAGNITUDE, MAX_MAGNITUDE));
        }
        let scale =
            Self { from: 0.0, to: 1.0, is_logarithmic, numbers: axis.numbers, step: 1.0, ticks: Vec::new() };
        if is_logarithmic { scale.powers(low, high, most) } else { scale.evenly((low, high), to, ends, most) }
    }

    fn evenly(mut self, (low, high): (f64, f64), to: Option<f64>, ends: Ends, most: f64) -> Self {
        let (low, high) = match ends {
            Ends::FromZero => (0.0, high.max(0.0)),
            Ends::Tight if low <= high => (low, high),
            Ends::Tight => (0.0, 1.0),
        };
        let high = to.filter(|it| *it > low).unwrap_or(high);
        // A single value, or a range so small that steps would be lost to rounding.
        let least = (low.abs().max(high.abs()) * 1e-9).max(f64::MIN_POSITIVE * 1e20);
        let (low, high) = match ends {
            _ if high - low > least => (low, high),
            Ends::FromZero => (0.0, 1.0),
            Ends::Tight => (low - low.abs().max(1.0) * 0.5, low + low.abs().max(1.0) * 0.5),
        };
        self.step = if self.numbers == Numbers::Time {
            moment::step(high - low, most)
        } else {
            round((high - low) / most)
        };
        let whole_steps = (high / self.step - 1e-9).ceil() * self.step;
        let cap = if self.numbers == Numbers::Percent && high <= 1.0 { 1.0 } else { f64::INFINITY };
        (self.from, self.to) = match (ends, to) {
            (Ends::FromZero, None) => (low, whole_steps.min(cap).max(high)),
            _ => (low, high),
        };
        let first = (self.from / self.step - 1e-9).ceil();
        let mut count = 0.0;
        while count <= most + 1.0 {
            let value = (first + count) * self.step;
            if value > self.to + self.step * 1e-6 {
                break;
            }
            self.tick(value);
            count += 1.0;
        }
        self
    }

    fn powers(mut self, low: f64, high: f64, most: f64) -> Self {
        let (low, high) = if low <= high { (low.max(1e-18), high.max(1e-18)) } else { (1.0, 10.0) };
        self.from = one_two_five(low.log10(), f64::floor);
        self.to = one_two_five(high.log10(), f64::ceil);
        if self.to / self.from < 1.5 {
            (self.from, self.to) = (self.from / 2.0, self.to * 2.0);
        }
        let (first, last) = (self.from.log10().floor(), self.to.log10().ceil());
        let decades = last - first;
        let inside = |value: f64| value >= self.from * 0.999 && value <= self.to * 1.001;
        let some = |factors: &[f64], every: f64| -> Vec<f64> {
            let mut all = Vec::new();
            let mut power = first;
            while power <= last {
                all.extend(factors.iter().map(|it| it * 10_f64.powf(power)).filter(|it| inside(*it)));
                power += every;
            }
            all
        };
        let mut chosen = some(&[1.0, 2.0, 5.0], 1.0);
        if whole(chosen.len()) > most {
            chosen = some(&[1.0], (decades / (most - 1.0)).ceil().max(1.0));
        }
        for value in chosen {
            self.step = value;
            self.tick(value);
        }
        self
    }

    fn tick(&mut self, value: f64) {
        if let Some(place) = self.place(value) {
            let text = self.written(value);
            self.ticks.push(Tick { place, text });
        }
    }

    /// Formats a value for the axis.
    pub(super) fn written(&self, value: f64) -> String {
        match self.numbers {
            Numbers::Percent => format!("{} %", number::short(value * 100.0, self.step * 100.0)),
            Numbers::Time => {
                moment::written(value, self.step).unwrap_or_else(|| number::short(value, self.step))
            }
            Numbers::Logarithmic => number::short(value, value),
            Numbers::Plain => number::short(value, self.step),
        }
    }

    /// Formats a value for a tooltip, with more digits than on the axis.
    pub(super) fn read(&self, value: f64) -> String {
        match self.numbers {
            Numbers::Percent => format!("{} %", number::short(value * 100.0, self.step)),
            Numbers::Time => moment::whole(value).unwrap_or_else(|| number::short(value, self.step)),
            Numbers::Logarithmic => number::short(value, value * 0.1),
            Numbers::Plain => number::short(value, self.step * 0.1),
        }
    }

    /// Returns the position from 0 to 1; values outside are at the end. `None` if the value is not a number.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        if value.is_nan() {
            return None;
        }
        let value = value.clamp(-MAX_MAGNITUDE, MAX_MAGNITUDE);
        let place = if self.is_logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        Some(if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 })
    }

    /// Whether a value is within the axis.
    pub(super) fn holds(&self, value: f64) -> bool {
        let (least, most) = if self.is_logarithmic {
            (self.from * (1.0 - 1e-9), self.to * (1.0 + 1e-9))
        } else {
            let slack = (self.to - self.from) * 1e-9;
            (self.from - slack, self.to + slack)
        };
        value >= least && value <= most
    }
}

#[allow(clippy::cast_precision_loss, reason = "at most a few hundred")]
fn whole(number: usize) -> f64 {
    number as f64
}

/// Returns the smallest of 1, 2, 5, 10, … that is at least `least`.
fn round(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|it| it * power)
        .into_iter()
        .find(|it| *it >= least * 0.999_999)
        .unwrap_or(power * 10.0)
}

/// Returns the number of 1, 2, 5, 10, … next to ten to the power of `power`, in the direction of `towards`.
fn one_two_five(power: f64, towards: fn(f64) -> f64) -> f64 {
    let decade = (power + 1e-9).floor();
    let marks = [0.0, 2_f64.log10(), 5_f64.log10(), 1.0].map(|it| decade + it);
    let upwards = towards(0.5) > 0.5;
    let found = if upwards {
        marks.into_iter().find(|it| *it >= power - 1e-9)
    } else {
        marks.into_iter().rev().find(|it| *it <= power + 1e-9)
    };
    10_f64.powf(found.unwrap_or(decade))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(numbers: Numbers, values: &[f64], ends: Ends) -> Vec<String> {
        let axis = Axis { numbers, ..Axis::default() };
        Scale::new(&axis, values.iter().copied(), ends, 6).ticks.into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(texts(Numbers::Plain, &[3.0, 97.0], Ends::FromZero), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(texts(Numbers::Percent, &[0.034], Ends::FromZero), ["0 %", "1 %", "2 %", "3 %", "4 %"]);
        assert_eq!(texts(Numbers::Percent, &[0.97], Ends::FromZero).last().unwrap(), "100 %");
        assert_eq!(texts(Numbers::Logarithmic, &[0.1, 9.0], Ends::Tight), ["0.1", "1", "10"]);
        assert_eq!(texts(Numbers::Logarithmic, &[0.5, 4.0], Ends::Tight), ["0.5", "1", "2", "5"]);
        let hours = texts(Numbers::Time, &[1_700_000_000.0, 1_700_014_400.0], Ends::Tight);
        assert_eq!(hours, ["23:00", "15 Nov", "01:00", "02:00"]);
    }

    #[test]
    fn an_empty_chart_has_an_axis() {
        for numbers in [Numbers::Plain, Numbers::Percent, Numbers::Time, Numbers::Logarithmic] {
            for values in
                [&[][..], &[f64::NAN], &[0.0], &[5.0], &[f64::INFINITY], &[1e300, -1e300], &[1e-300]]
            {
                for ends in [Ends::FromZero, Ends::Tight] {
                    assert!(!texts(numbers, values, ends).is_empty(), "{numbers:?} {values:?} {ends:?}");
                }
            }
        }
    }
}
