//! A budget for retries: a share of the calls.
//!
//! Without one, every layer that retries three times multiplies the load of a failing server by four. With a budget of
//! a tenth, the load stays below 1.1 times the normal one, whatever the number of tries of a single call.

/// The settings of a retry budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudgetSettings {
    /// Retries per call.
    pub share: f64,
    /// Retries that a client may make before its calls have earned any.
    pub reserve: f64,
    /// The most retries that calls can save up.
    pub max: f64,
}

impl Default for RetryBudgetSettings {
    /// A tenth of the calls, with a reserve of 3 and at most 100 saved up.
    fn default() -> Self {
        Self { share: 0.1, reserve: 3.0, max: 100.0 }
    }
}

/// The retries that are left.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    settings: RetryBudgetSettings,
    left: f64,
}

impl RetryBudget {
    /// Creates a budget that has its reserve.
    pub fn new(settings: RetryBudgetSettings) -> Self {
        Self { left: settings.reserve.clamp(0.0, settings.max.max(0.0)), settings }
    }

    /// Counts a call, which earns a share of a retry.
    pub fn deposit(&mut self) {
        self.left = (self.left + self.settings.share.max(0.0)).min(self.settings.max.max(0.0));
    }

    /// Takes one retry. Returns whether there was one.
    ///
    /// ```
    /// # use tollgate_client::retry::{RetryBudget, RetryBudgetSettings};
    /// let mut budget = RetryBudget::new(RetryBudgetSettings { share: 0.5, reserve: 1.0, max: 10.0 });
    /// assert!(budget.withdraw());
    /// assert!(!budget.withdraw());
    /// budget.deposit();
    /// budget.deposit();
    /// assert!(budget.withdraw());
    /// ```
    pub fn withdraw(&mut self) -> bool {
        // Ten deposits of a tenth are a little less than one.
        let has_one = self.left >= 1.0 - 1e-9;
        if has_one {
            self.left = (self.left - 1.0).max(0.0);
        }
        has_one
    }
}
