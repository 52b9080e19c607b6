//! Penstock end to end: interoperability, faults, documentation and layering.
