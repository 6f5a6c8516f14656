//! Values over time and distributions, as they are kept in `run.json`.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// One value over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is, such as `throughput`.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Seconds since the sample began, and the value then, in order.
    pub points: Vec<(f64, f64)>,
}

/// A distribution of durations.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedHistogram {
    /// What it is, such as `lag` or `core-0.landing`.
    pub name: String,
    /// Nanoseconds.
    pub histogram: Histogram<u64>,
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    name: String,
    /// HdrHistogram's V2 encoding, deflated.
    v2: Vec<u8>,
}

impl Serialize for NamedHistogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut v2 = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.histogram, &mut v2)
            .map_err(|error| serde::ser::Error::custom(format!("{error:?}")))?;
        Encoded { name: self.name.clone(), v2 }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for NamedHistogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded = Encoded::deserialize(deserializer)?;
        let histogram = Deserializer::new()
            .deserialize(&mut encoded.v2.as_slice())
            .map_err(|error| serde::de::Error::custom(format!("not a histogram: {error:?}")))?;
        Ok(Self { name: encoded.name, histogram })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_its_writing() {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        for value in [1, 1_000, 59_000_000_000] {
            histogram.record(value).unwrap();
        }
        let named = NamedHistogram { name: "lag".to_owned(), histogram };
        let text = serde_json::to_string(&named).unwrap();
        let back: NamedHistogram = serde_json::from_str(&text).unwrap();
        assert_eq!(back.histogram.len(), 3);
        assert_eq!(back.histogram.max(), named.histogram.max());
        assert!(serde_json::from_str::<NamedHistogram>(r#"{"name":"x","v2":[1,2]}"#).is_err());
    }
}
