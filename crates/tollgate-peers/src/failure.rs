//! The failure of a call to another node.

use tollgate_store::StoreError;

pub(crate) use tollgate_store::CallFailure as Failure;

/// Returns the error of a request: a node that does not answer is an outage of its keys, not of the store.
pub(crate) fn outage_of_keys(failure: Failure) -> StoreError {
    StoreError::Part(Box::new(match failure {
        Failure::Migrating(why) => StoreError::Refused((*why).into()),
        failure => failure.into(),
    }))
}
