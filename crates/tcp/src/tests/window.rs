//! Scripts.
