//! stub until fingerprint/ lands
#![allow(missing_docs)]
use alloc::vec::Vec;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint { version: u8, digest: [u8; 32] }
impl Fingerprint {
    pub const fn from_parts(version: u8, digest: [u8; 32]) -> Self { Self { version, digest } }
    pub fn version(&self) -> u8 { self.version }
    pub fn digest(&self) -> &[u8; 32] { &self.digest }
}
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprints(Vec<Fingerprint>);
impl From<Fingerprint> for Fingerprints { fn from(f: Fingerprint) -> Self { Self(alloc::vec![f]) } }
impl Fingerprints {
    pub fn current(&self) -> Fingerprint { self.0[0] }
    pub fn under(&self, version: u8) -> Option<Fingerprint> { self.0.iter().copied().find(|f| f.version == version) }
}
