//! A macro that implements `Store` for an enum of stores.

/// Implements [`Store`](tollgate::Store) for an enum whose variants each contain a store.
macro_rules! delegate_store {
    ($any:ident: $($variant:ident),+) => {
        impl tollgate::Store for $any {
            async fn decide(
                &self,
                checks: &[tollgate::store::Check<'_>],
            ) -> Result<tollgate::store::Answer, tollgate::StoreError> {
                match self { $(Self::$variant(store) => store.decide(checks).await),+ }
            }

            #[inline]
            fn try_decide(
                &self,
                checks: &[tollgate::store::Check<'_>],
                outcomes: &mut tollgate::store::Outcomes,
            ) -> Option<(bool, tollgate::Timestamp)> {
                match self { $(Self::$variant(store) => store.try_decide(checks, outcomes)),+ }
            }

            #[inline]
            fn try_decide_at(
                &self,
                checks: &[tollgate::store::Check<'_>],
                now: tollgate::Timestamp,
                outcomes: &mut tollgate::store::Outcomes,
            ) -> Option<(bool, tollgate::Timestamp)> {
                match self { $(Self::$variant(store) => store.try_decide_at(checks, now, outcomes)),+ }
            }

            fn clock_id(&self) -> Option<tollgate::ClockId> {
                match self { $(Self::$variant(store) => store.clock_id()),+ }
            }

            #[inline]
            fn prefetch(&self, rule: &tollgate::Rule, key: &[u8]) {
                match self { $(Self::$variant(store) => store.prefetch(rule, key)),+ }
            }

            async fn decide_uncached(
                &self,
                checks: &[tollgate::store::Check<'_>],
            ) -> Result<tollgate::store::Answer, tollgate::StoreError> {
                match self { $(Self::$variant(store) => store.decide_uncached(checks).await),+ }
            }

            async fn decide_all(
                &self,
                batches: &[&[tollgate::store::Check<'_>]],
            ) -> Vec<Result<tollgate::store::Answer, tollgate::StoreError>> {
                match self { $(Self::$variant(store) => store.decide_all(batches).await),+ }
            }

            async fn adjust(
                &self,
                rule: &tollgate::Rule,
                key: &[u8],
                adjustment: tollgate::Adjustment,
            ) -> Result<tollgate::Outcome, tollgate::StoreError> {
                match self { $(Self::$variant(store) => store.adjust(rule, key, adjustment).await),+ }
            }

            async fn adjust_once(
                &self,
                rule: &tollgate::Rule,
                key: &[u8],
                once: tollgate::store::Repeatable,
            ) -> Result<tollgate::Outcome, tollgate::StoreError> {
                match self { $(Self::$variant(store) => store.adjust_once(rule, key, once).await),+ }
            }

            fn never_waits(&self) -> bool {
                match self { $(Self::$variant(store) => store.never_waits()),+ }
            }

            fn recognizes_adjustments(&self) -> bool {
                match self { $(Self::$variant(store) => store.recognizes_adjustments()),+ }
            }

            fn try_adjust(
                &self,
                rule: &tollgate::Rule,
                key: &[u8],
                adjustment: tollgate::Adjustment,
            ) -> Option<tollgate::Outcome> {
                match self { $(Self::$variant(store) => store.try_adjust(rule, key, adjustment)),+ }
            }

            #[inline]
            fn wall_ahead(&self, at: tollgate::Timestamp) -> i64 {
                match self { $(Self::$variant(store) => store.wall_ahead(at)),+ }
            }

            async fn probe(&self) -> Result<(), tollgate::StoreError> {
                match self { $(Self::$variant(store) => store.probe().await),+ }
            }

            fn is_shared(&self) -> bool {
                match self { $(Self::$variant(store) => store.is_shared()),+ }
            }

            fn nodes(&self) -> usize {
                match self { $(Self::$variant(store) => store.nodes()),+ }
            }

            fn holding(&self, rule: &tollgate::Rule, key: &[u8]) -> Option<tollgate::store::Holding> {
                match self { $(Self::$variant(store) => store.holding(rule, key)),+ }
            }

            fn holdings(&self, max_keys: usize) -> Vec<tollgate::store::Holding> {
                match self { $(Self::$variant(store) => store.holdings(max_keys)),+ }
            }
        }
    };
}

pub(super) use delegate_store;
