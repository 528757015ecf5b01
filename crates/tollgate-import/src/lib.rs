//! Other limiters' configuration as a Tollgate policy, with comments on what differs.
