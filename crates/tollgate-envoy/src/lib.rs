//! Configuration files of envoyproxy/ratelimit: read, merged, and put in force as limits of a policy.
