//! Edits round trip, manifests replay, and every damaged byte is noticed or harmless.
