//! Doors for the proof (`firn-sim`, `fuzz`): what no user needs and tests of the inside do. Not part of the API; not
//! there without the feature `proof`.
