//! Tests of the client against servers over real connections.
