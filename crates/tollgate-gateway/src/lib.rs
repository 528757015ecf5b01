//! The gateway: a reverse proxy behind the tower layer.
