//! A durability as the word that names it, in reports.

use firndb::Durability;
use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

pub(crate) fn serialize<S: Serializer>(
    durability: &Durability,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(durability)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Durability, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(D::Error::custom)
}
