//! The baseline: a straightforward implementation.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use super::{Offer, Subject};
use crate::stream::Text;

/// GCRA with one arrival time per key, behind one lock.
pub struct MutexHashMap {
    arrivals: Mutex<HashMap<String, u64>>,
    /// The cost of a unit, and the largest debt, in microseconds.
    price: u64,
    most: u64,
    now: u64,
}

impl Subject for MutexHashMap {
    const NAME: &'static str = "mutex-hashmap";
    const REMARK: &'static str =
        "a mutex around std's map of strings; answers yes or no; the time is handed in";
    type Keys = Text;

    fn new(offer: Offer, keys: usize) -> Self {
        let (period, burst) = offer.terms();
        let price = period.as_secs() * 1_000_000;
        let arrivals = Mutex::new(HashMap::with_capacity(keys));
        Self { arrivals, price, most: price * u64::from(burst), now: 1_000_000_000_000 }
    }

    #[inline(always)]
    fn check(&self, key: &str) -> bool {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(arrival) = arrivals.get_mut(key) else {
            arrivals.insert(key.to_owned(), self.now + self.price);
            return true;
        };
        let next = (*arrival).max(self.now) + self.price;
        let admitted = next - self.now <= self.most;
        if admitted {
            *arrival = next;
        }
        black_box(admitted)
    }
}
